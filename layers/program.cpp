#include "layers/program.hpp"

#include "layers/inference_program.hpp"
#include "layers/pipeline_program.hpp"
#include "layers/stage.hpp"

#include <cmath>

namespace shardmark {
namespace {

/// How a block's input x and output gradient are held: tokens split by SP, columns split over tp,
/// or everything on every rank.
enum class Held : std::uint8_t { token_share, column_share, whole };
struct Boundary {
  std::int64_t width{0};
  Held held{Held::token_share};
};

/// Says of the per-token tensors which tokens of the whole they hold.
void place(NamedTensors& tensors, const LayerConfig& config) {
  const ContextParallel& context = config.parallel.context;
  if (context.is_split())
    place_tokens(tensors, context.local_places(config.shape.seq), config.shape.batch,
                 config.shape.seq);
}

/// Runs any layer with forward(rank, state, x) and backward(rank, state, dy, part) between an input
/// and an output gradient of its own.
template <class Layer>
class BlockProgram final : public LayerProgram {
 public:
  template <class Make>
  BlockProgram(Rank& rank, const LayerConfig& config, const Boundary& in, const Boundary& out,
               const Make& make)
      : rank_{rank},
        config_{config},
        in_{in},
        out_{out},
        scratch_{std::make_unique<TokenScratch>(make_token_scratch(
            rank, config.parallel, {config.tokens(), config.shape.hidden}, config.dtype))},
        layer_{make(*scratch_)},
        state_{layer_.make_state(rank)},
        x_{allocate(in)},
        dy_{allocate(out)} {
    NamedTensors weights;
    layer_.list_weights(weights);
    for (const NamedTensor& named : weights)
      if (named.role == Role::gradient) weight_gradients_.push_back(named.tensor);
  }

  void forward() override { y_ = layer_.forward(rank_, state_, x_.tensor()); }
  void backward(Part part) override {
    (void)layer_.backward(rank_, state_, dy_.tensor(), part);
    if (has_weight(part) && config_.parallel.context.is_split()) sum_weight_gradients();
  }

  NamedTensors tensors() const override {
    NamedTensors list;
    const bool attention = config_.block == BlockKind::attention;
    const ExactRule rule = attention ? ExactRule::positions : ExactRule::sparse;
    // Sparse inputs have about half of their elements non-zero, whatever the number of tokens.
    const Init x_init{
        0, 1, rule, 1, 0.5 * static_cast<double>(config_.shape.tokens()), config_.shape.seq};
    list.push_back(boundary("x", x_.tensor(), in_, x_init));
    layer_.list_weights(list);
    layer_.list_state(state_, list);
    list.push_back(boundary("y_grad", dy_.tensor(), out_, Init{0, 1, ExactRule::gradient_rows}));
    place(list, config_);
    return list;
  }

 private:
  /// Each cp rank has seen only its tokens. For the weights the cp group is one more group of data
  /// parallelism, so their sums run on that lane: there they meet no exchange of attention, and a
  /// data-parallel run makes one reduction of both. Nothing is left to hide them behind here.
  void sum_weight_gradients() {
    const auto scope = rank_.scope("weight_gradients");
    const Parallel& parallel = config_.parallel;
    // Under SP and overlap nobody has waited for the sum over tp of the first norm's gradients, and
    // that one has waited for everything else.
    const bool tp_is_last =
        config_.block == BlockKind::block && parallel.sequence_parallel && parallel.overlap;
    rank_.order(tp_is_last ? Lane::tp : Lane::compute, Lane::dp);
    for (const Tensor& gradient : weight_gradients_)
      all_reduce(rank_, gradient, parallel.context.cp, Lane::dp);
    rank_.order(Lane::dp, Lane::compute);
  }
  [[nodiscard]] Buffer allocate(const Boundary& boundary) const {
    const std::int64_t tokens = config_.tokens();
    const std::int64_t rows =
        boundary.held == Held::token_share ? config_.parallel.local_tokens(tokens) : tokens;
    const std::int64_t cols = boundary.held == Held::column_share
                                  ? boundary.width / config_.parallel.tp.size
                                  : boundary.width;
    return rank_.allocate({rows, cols}, config_.dtype, Category::activation);
  }
  [[nodiscard]] NamedTensor boundary(const char* name, const Tensor& tensor,
                                     const Boundary& boundary, const Init& init) const {
    const std::int64_t tokens = config_.tokens();
    if (boundary.held == Held::token_share)
      return token_tensor(config_.parallel, name, tensor, tokens, Role::input, "", init);
    if (boundary.held == Held::whole) {
      NamedTensor whole = replicated(name, tensor, Role::input, "", init);
      whole.per_token = true;
      return whole;
    }
    const std::int64_t count = tensor.cols();
    ShardPart part{name, {tokens, boundary.width}, 0, config_.parallel.tp.position * count, count,
                   init};
    return column_tensor(name, tensor, Role::input, {std::move(part)});
  }

  Rank& rank_;
  LayerConfig config_;
  Boundary in_, out_;
  std::unique_ptr<TokenScratch> scratch_;
  Layer layer_;
  typename Layer::State state_;
  Buffer x_, dy_;
  Tensor y_;
  std::vector<Tensor> weight_gradients_;
};

/// Attention alone: q, k, v and the gradient of o are given.
class CoreProgram final : public LayerProgram {
 public:
  CoreProgram(Rank& rank, const LayerConfig& config)
      : rank_{rank},
        config_{config},
        attention_{attention_config(config)},
        core_{make_attention_core(attention_)},
        q_{allocate(attention_.heads, Category::activation)},
        k_{allocate(attention_.kv_heads, Category::activation)},
        v_{allocate(attention_.kv_heads, Category::activation)},
        o_{allocate(attention_.heads, Category::activation)},
        d_o_{allocate(attention_.heads, Category::activation)},
        dq_{allocate(attention_.heads, Category::gradient)},
        dk_{allocate(attention_.kv_heads, Category::gradient)},
        dv_{allocate(attention_.kv_heads, Category::gradient)},
        state_{core_->make_state(rank)} {}

  void forward() override { core_->forward(rank_, *state_, inputs(), o_.tensor()); }
  /// There are no weights.
  void backward(Part part) override {
    if (has_input(part))
      core_->backward(rank_, *state_, inputs(), o_.tensor(), d_o_.tensor(),
                      {dq_.tensor(), dk_.tensor(), dv_.tensor()});
  }

  NamedTensors tensors() const override {
    // Products of such q and k over a head have about unit variance after the softmax's scale.
    const Init init{0, std::sqrt(3.0), ExactRule::sparse};
    NamedTensors list;
    list.push_back(named("q", q_, Role::input, "", init));
    list.push_back(named("k", k_, Role::input, "", init));
    list.push_back(named("v", v_, Role::input, "", init));
    list.push_back(named("o", o_, Role::output, "softmax(q k^T / sqrt(head_dim)) v per head"));
    list.push_back(named("o_grad", d_o_, Role::input, "", Init{0, 1, ExactRule::sparse}));
    list.push_back(named("q_grad", dq_, Role::gradient, "attention backward of o_grad"));
    list.push_back(named("k_grad", dk_, Role::gradient, "attention backward of o_grad"));
    list.push_back(named("v_grad", dv_, Role::gradient, "attention backward of o_grad"));
    place(list, config_);
    return list;
  }

 private:
  [[nodiscard]] Heads inputs() const { return {q_.tensor(), k_.tensor(), v_.tensor()}; }
  [[nodiscard]] Buffer allocate(std::int64_t heads, Category category) const {
    return rank_.allocate({config_.tokens(), heads * attention_.head_dim}, config_.dtype, category);
  }
  [[nodiscard]] NamedTensor named(const char* name, const Buffer& buffer, Role role,
                                  std::string formula, Init init = {}) const {
    const Tensor tensor = buffer.tensor();
    const Group& tp = config_.parallel.tp;
    ShardPart part{name,
                   {tensor.rows(), tensor.cols() * tp.size},
                   0,
                   tp.position * tensor.cols(),
                   tensor.cols(),
                   init};
    return column_tensor(name, tensor, role, {std::move(part)}, std::move(formula));
  }

  Rank& rank_;
  LayerConfig config_;
  AttentionConfig attention_;
  std::unique_ptr<AttentionCore> core_;
  Buffer q_, k_, v_, o_, d_o_, dq_, dk_, dv_;
  std::unique_ptr<AttentionCore::State> state_;
};

class ModelProgram final : public LayerProgram {
 public:
  ModelProgram(Rank& rank, const LayerConfig& config)
      : rank_{rank},
        scratch_{std::make_unique<TokenScratch>(make_token_scratch(
            rank, config.parallel, {config.tokens(), config.shape.hidden}, config.dtype))},
        model_{rank, config, whole_model(config), *scratch_},
        state_{model_.make_state(rank)} {}
  void forward() override { (void)model_.forward(rank_, state_, {}); }
  void backward(Part part) override { (void)model_.backward(rank_, state_, {}, part); }
  NamedTensors tensors() const override {
    NamedTensors list;
    model_.list_weights(list);
    model_.list_state(state_, list);
    return list;
  }

 private:
  Rank& rank_;
  std::unique_ptr<TokenScratch> scratch_;
  Stage model_;
  Stage::State state_;
};

ColumnParallelLinear::Config column_config(const LayerConfig& config) {
  const ModelShape& shape = config.shape;
  const std::int64_t count = shape.ffn / config.parallel.tp.size;
  const double scale = std::sqrt(3.0 / static_cast<double>(shape.hidden));
  ColumnParallelLinear::Config linear{.name = "linear",
                                      .parallel = config.parallel,
                                      .dtype = config.dtype,
                                      .accumulate_gradients = config.accumulate_gradients,
                                      .tokens = config.tokens(),
                                      .in = shape.hidden,
                                      .bias = shape.biases,
                                      .gather_output = config.gather_output};
  linear.parts = {{"",
                   {shape.hidden, shape.ffn},
                   0,
                   config.parallel.tp.position * count,
                   count,
                   Init{0, scale, ExactRule::sparse}}};
  return linear;
}

RowParallelLinear::Config row_config(const LayerConfig& config) {
  const ModelShape& shape = config.shape;
  const std::int64_t count = shape.ffn / config.parallel.tp.size;
  const double scale = std::sqrt(3.0 / static_cast<double>(shape.ffn));
  return {.name = "linear",
          .parallel = config.parallel,
          .dtype = config.dtype,
          .accumulate_gradients = config.accumulate_gradients,
          .tokens = config.tokens(),
          .out = shape.hidden,
          .global_in = shape.ffn,
          .first = config.parallel.tp.position * count,
          .in = count,
          .init = Init{0, scale, ExactRule::sparse},
          .bias = shape.biases};
}

}  // namespace

std::unique_ptr<LayerProgram> make_program(Rank& rank, const LayerConfig& config) {
  check_divisible(config);
  if (config.is_pipeline()) return make_pipeline_program(rank, config);
  if (config.inference) return make_inference_program(rank, config);
  const Boundary hidden{config.shape.hidden, Held::token_share};
  const Boundary split{config.shape.ffn, Held::column_share};
  const Boundary whole{config.shape.ffn, Held::whole};
  switch (config.block) {
    case BlockKind::linear_column:
      return std::make_unique<BlockProgram<ColumnParallelLinear>>(
          rank, config, hidden, config.gather_output ? whole : split, [&](TokenScratch& scratch) {
            return ColumnParallelLinear{rank, column_config(config), scratch};
          });
    case BlockKind::linear_row:
      return std::make_unique<BlockProgram<RowParallelLinear>>(
          rank, config, split, hidden, [&](TokenScratch& scratch) {
            return RowParallelLinear{rank, row_config(config), scratch};
          });
    case BlockKind::mlp:
      return std::make_unique<BlockProgram<Mlp>>(rank, config, hidden, hidden,
                                                 [&](TokenScratch& scratch) {
                                                   return Mlp{rank, config, scratch};
                                                 });
    case BlockKind::attention:
      return std::make_unique<BlockProgram<AttentionLayer>>(
          rank, config, hidden, hidden, [&](TokenScratch& scratch) {
            return AttentionLayer{rank, config, scratch};
          });
    case BlockKind::block:
      return std::make_unique<BlockProgram<TransformerBlock>>(
          rank, config, hidden, hidden, [&](TokenScratch& scratch) {
            return TransformerBlock{rank, config, "block0", scratch};
          });
    case BlockKind::model:
      return std::make_unique<ModelProgram>(rank, config);
    case BlockKind::attention_core:
      return std::make_unique<CoreProgram>(rank, config);
  }
  return nullptr;
}

void initialize(Rank& rank, const LayerProgram& program, const Values& values) {
  for (const NamedTensor& named : program.tensors())
    if (named.role == Role::weight || named.role == Role::input)
      write_values(rank.backend(), named, values);
}

}  // namespace shardmark
