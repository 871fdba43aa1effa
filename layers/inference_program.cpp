// Lanes of a stage, for passes 0, 1, 2, ... (requests in turn, token after token):
//
//   pp_fwd_recv  x[0]    x[1]    x[0] once pass 0 has used it ...
//   compute           pass 0   pass 1   pass 2 ...
//   pp_fwd_send               y[0]     y[1] ...
//   pp_bwd_*     the token of a pass: last stage to first
//
// Every wait is for an earlier pass, or for the same pass on an earlier stage or lane. So nothing
// waits in a circle, also where a send waits for its receiver.

#include "layers/inference_program.hpp"

#include "core/error.hpp"
#include "core/functions.hpp"
#include "layers/stage.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace shardmark {
namespace {

constexpr int num_slots = 2;  ///< boundary tensors that take turns

template <class Items>
auto& at(Items& items, int index) {
  return items[static_cast<std::size_t>(index)];
}

/// The head looks at the last token of each sequence only.
LayerConfig head_config(LayerConfig pass) {
  pass.shape.seq = 1;
  return pass;
}

/// The first and the last stage, between which tokens travel: the others have no part in their
/// channel.
Group ends_of(const Group& pp) {
  const int last = pp.size - 1;
  return {pp.axis, pp.world_rank(0), last * pp.stride, 2, pp.position == last ? 1 : 0};
}

/// A layer with its activations.
template <class Layer>
struct Active {
  template <class... Arguments>
  explicit Active(Rank& rank, Arguments&&... arguments)
      : layer{rank, std::forward<Arguments>(arguments)...}, state{layer.make_state(rank)} {}
  Layer layer;
  typename Layer::State state;
};

/// What is a request's own on this rank.
struct Request {
  Buffer prompt;               ///< first stage, prefill: ids
  Buffer token;                ///< first and last stage: the latest id of each sequence
  Buffer next;                 ///< last stage: the id that is taken instead of the largest logit's
  Buffer maximum;              ///< last stage: that logit
  std::vector<Buffer> caches;  ///< of the blocks
  Fence token_moved{};         ///< on the first stage received, on the last one sent
};

class InferenceProgram final : public LayerProgram {
 public:
  InferenceProgram(Rank& rank, const LayerConfig& config)
      : rank_{rank},
        run_{*config.inference},
        pp_{config.parallel.pp},
        ends_{ends_of(pp_)},
        pass_{pass_config(config)},
        scratch_{make_token_scratch(rank, config.parallel, {pass_.tokens(), pass_.shape.hidden},
                                    config.dtype)} {
    SHARDMARK_CHECK(config.pipeline.blocks.size() == static_cast<std::size_t>(pp_.size),
                    "blocks for ", config.pipeline.blocks.size(), " stages on pp ", pp_.size);
    const Rank::Omission omission = rank.omit(Category::gradient);
    const StageRange range = stage_range(config, pp_.position);
    if (range.has_embedding) embedding_.emplace(rank, pass_, scratch_);
    for (std::int64_t block = range.first_block; block < range.last_block; ++block)
      blocks_.emplace_back(rank, pass_, message("block", block), scratch_);
    SHARDMARK_CHECK(!blocks_.empty(), "stage ", pp_.position, " has no blocks");
    working_ = blocks_.front().make_state(rank);
    if (range.has_head) {
      norm_.emplace(rank, norm_config(head_config(pass_), "final_norm"));
      head_.emplace(rank, head_config(pass_), scratch_);
    }
    for (int slot = 0; slot < num_slots; ++slot) {
      if (!is_first()) at(x_, slot) = allocate_boundary();
      if (!is_last()) at(y_, slot) = allocate_boundary();
    }
    for (int request = 0; request < run_.requests; ++request) {
      requests_.push_back(make_request());
      names_.push_back(message("request", request));
    }
  }

  void forward() override {
    x_free_ = y_sent_ = {};
    for (Request& request : requests_) request.token_moved = {};
    if (!is_first()) rank_.order(Lane::compute, Lane::pp_fwd_recv);
    for (int pass = 0; pass < run_.num_passes(); ++pass) {
      const auto scope = rank_.scope(at(names_, pass % run_.requests));
      const Tensor y = run_blocks(pass, is_first() ? embed(pass) : receive(pass));
      if (is_last())
        take_token(pass, y);
      else
        send(pass, y);
      if (is_first() && !is_last()) receive_token(pass);
    }
    if (!is_last()) rank_.order(Lane::pp_fwd_send, Lane::compute);
    for (const Lane lane : {Lane::pp_bwd_send, Lane::pp_bwd_recv}) rank_.order(lane, Lane::compute);
  }
  void step() override { forward(); }
  void backward(Part) override { SHARDMARK_CHECK(false, "inference has no backward pass"); }

  NamedTensors tensors() const override {
    NamedTensors list, state;
    if (embedding_) {
      embedding_->layer.list_weights(list);
      embedding_->layer.list_state(embedding_->state, state);
    }
    for (const TransformerBlock& block : blocks_) block.list_weights(list);
    if (head_) {
      norm_->layer.list_weights(list);
      head_->layer.list_weights(list);
      head_->layer.list_state(head_->state, state);
    }
    std::erase_if(list, [](const NamedTensor& named) { return named.role == Role::gradient; });
    for (const NamedTensor& named : state)  // the rest is not of one request, or not used
      if (named.name == "embedding/position_ids" || named.name == "head/logits/y")
        list.push_back(named);
    for (int request = 0; request < run_.requests; ++request)
      list_request(requests_[static_cast<std::size_t>(request)],
                   names_[static_cast<std::size_t>(request)], list);
    return list;
  }

 private:
  [[nodiscard]] bool is_first() const { return pp_.position == 0; }
  [[nodiscard]] bool is_last() const { return pp_.position + 1 == pp_.size; }
  [[nodiscard]] bool decodes() const { return run_.step == InferenceStep::decode; }
  /// Whether the same request, and the same slot, have a pass after this one.
  [[nodiscard]] bool has_next_token(int pass) const {
    return pass + run_.requests < run_.num_passes();
  }
  [[nodiscard]] bool has_next_turn(int pass) const { return pass + num_slots < run_.num_passes(); }

  [[nodiscard]] Buffer allocate_boundary() const {
    return rank_.allocate({pass_.tokens(), pass_.shape.hidden}, pass_.dtype, Category::activation);
  }

  [[nodiscard]] Request make_request() const {
    const std::int64_t batch = pass_.shape.batch;
    const auto ids = [&](std::int64_t count) {
      return rank_.allocate({count}, DType::i32, Category::activation);
    };
    Request request;
    if (is_first() && !decodes()) request.prompt = ids(pass_.tokens());
    if (is_first() || is_last()) request.token = ids(batch);
    if (is_last()) {
      request.next = ids(batch);
      request.maximum = rank_.allocate({batch}, DType::f32, Category::activation);
    }
    for (const TransformerBlock& block : blocks_) request.caches.push_back(block.make_cache(rank_));
    return request;
  }

  Tensor embed(int pass) {
    Request& request = at(requests_, pass % run_.requests);
    if (request.token_moved.id != 0 && !is_last()) rank_.await(request.token_moved, Lane::compute);
    const Buffer& ids = decodes() ? request.token : request.prompt;
    copy(rank_, ids.tensor(), embedding_->state.ids.tensor());
    return embedding_->layer.forward(rank_, embedding_->state);
  }

  Tensor receive(int pass) {
    const int slot = pass % num_slots;
    const Tensor x = at(x_, slot).tensor();
    if (at(x_free_, slot).id != 0) rank_.await(at(x_free_, slot), Lane::pp_fwd_recv);
    send_recv(rank_, {}, -1, x, pp_.position - 1, pp_, Lane::pp_fwd_recv);
    rank_.await(rank_.signal(Lane::pp_fwd_recv), Lane::compute);
    return x;
  }

  /// All blocks work in the same activations. What the last one makes stays until it is sent.
  Tensor run_blocks(int pass, Tensor x) {
    const int slot = pass % num_slots;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const bool is_sent = !is_last() && i + 1 == blocks_.size();
      working_.attention.cache = at(requests_, pass % run_.requests).caches[i].tensor();
      if (is_sent && at(y_sent_, slot).id != 0) rank_.await(at(y_sent_, slot), Lane::compute);
      x = blocks_[i].forward(rank_, working_, x, is_sent ? at(y_, slot).tensor() : Tensor{});
      if (i == 0 && !is_first() && has_next_turn(pass))
        at(x_free_, slot) = rank_.signal(Lane::compute);
    }
    return x;
  }

  void send(int pass, const Tensor& y) {
    rank_.order(Lane::compute, Lane::pp_fwd_send);
    send_recv(rank_, y, pp_.position + 1, {}, -1, pp_, Lane::pp_fwd_send);
    if (has_next_turn(pass)) at(y_sent_, pass % num_slots) = rank_.signal(Lane::pp_fwd_send);
  }

  void take_token(int pass, const Tensor& y) {
    Request& request = at(requests_, pass % run_.requests);
    // With a sequence as a row, its last token is a column block.
    const std::int64_t batch = pass_.shape.batch, seq = pass_.shape.seq;
    const std::int64_t width = pass_.shape.hidden;
    const Tensor last = y.reshape({batch, seq * width}).column_block((seq - 1) * width, width);
    const Tensor normalised = norm_->layer.forward(rank_, norm_->state, last);
    copy(rank_, head_->layer.largest_logit(rank_, head_->state, normalised),
         request.maximum.tensor());
    if (request.token_moved.id != 0) rank_.await(request.token_moved, Lane::compute);
    copy(rank_, request.next.tensor(), request.token.tensor());
    if (is_first()) return;
    rank_.order(Lane::compute, Lane::pp_bwd_send);
    send_recv(rank_, request.token.tensor(), 0, {}, -1, ends_, Lane::pp_bwd_send);
    if (has_next_token(pass)) request.token_moved = rank_.signal(Lane::pp_bwd_send);
  }

  /// Open only once nothing of the pass is left to do here.
  void receive_token(int pass) {
    Request& request = at(requests_, pass % run_.requests);
    if (decodes() || pass == 0) rank_.order(Lane::compute, Lane::pp_bwd_recv);
    send_recv(rank_, {}, -1, request.token.tensor(), 1, ends_, Lane::pp_bwd_recv);
    if (has_next_token(pass)) request.token_moved = rank_.signal(Lane::pp_bwd_recv);
  }

  void list_request(const Request& request, const std::string& name, NamedTensors& into) const {
    const Prefix prefix{into, name};
    const Init ids{0, 0, ExactRule::ids, 1, 4, pass_.shape.vocab};
    if (request.prompt.tensor())
      into.push_back(replicated("prompt", request.prompt.tensor(), Role::input, "", ids));
    if (const Tensor& token = request.token.tensor())
      into.push_back(
          replicated("token", token, decodes() ? Role::input : Role::output, "next", ids));
    if (const Tensor& next = request.next.tensor()) {
      into.push_back(replicated("next", next, Role::input, "", ids));
      into.push_back(replicated("maximum", request.maximum.tensor(), Role::output,
                                "largest logit of each sequence's last token"));
    }
    for (std::size_t i = 0; i < blocks_.size(); ++i)
      blocks_[i].list_cache(request.caches[i].tensor(), decodes() ? Role::input : Role::activation,
                            into);
  }

  Rank& rank_;
  InferenceConfig run_;
  Group pp_, ends_;
  LayerConfig pass_;
  TokenScratch scratch_;
  std::optional<Active<VocabParallelEmbedding>> embedding_;
  std::vector<TransformerBlock> blocks_;
  TransformerBlock::State working_;
  std::optional<Active<NormLayer>> norm_;
  std::optional<Active<VocabParallelHead>> head_;
  std::array<Buffer, num_slots> x_, y_;
  std::array<Fence, num_slots> x_free_{}, y_sent_{};
  std::vector<Request> requests_;
  std::vector<std::string> names_;
};

}  // namespace

LayerConfig pass_config(const LayerConfig& config) {
  LayerConfig pass = config;
  if (config.inference->step == InferenceStep::decode) pass.past = std::exchange(pass.shape.seq, 1);
  return pass;
}

std::int64_t kv_cache_bytes(const LayerConfig& config) {
  const LayerConfig pass = pass_config(config);
  const ModelShape& shape = pass.shape;
  const std::int64_t tokens = shape.batch * (pass.past + shape.seq);
  const std::int64_t width = 2 * config.local_kv_heads() * shape.head_dim;
  return config.inference->requests * std::ranges::max(config.pipeline.blocks) * tokens * width *
         size_of(config.dtype);
}

std::unique_ptr<LayerProgram> make_inference_program(Rank& rank, const LayerConfig& config) {
  return std::make_unique<InferenceProgram>(rank, config);
}

}  // namespace shardmark
