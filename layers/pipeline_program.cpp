#include "layers/pipeline_program.hpp"

#include "core/error.hpp"
#include "core/functions.hpp"
#include "layers/pipeline/rank_plan.hpp"
#include "layers/stage.hpp"

#include <algorithm>

namespace shardmark {
namespace {

using pipeline::Act;
using pipeline::Action;
using pipeline::Held;
using pipeline::Instruction;

template <class T>
T& at(std::vector<T>& items, int index) {
  return items[static_cast<std::size_t>(index)];
}

/// A stage on this rank with the buffers of its plan.
struct LocalStage {
  struct Working {
    Stage::State state;
    Buffer kept_dx{};  ///< what leaves the stage, where `shared` is used in turns
    Tensor y{}, dx{};
  };
  Stage layers;
  std::vector<Buffer> shared{};  ///< gradients between its layers, for one micro-batch
  std::vector<Working> states{};
  std::vector<Buffer> x{}, dy{};
  std::vector<Tensor> gradients{};
  std::vector<Tensor> tied{};  ///< of these the table's, the head's
  Group copies{};              ///< the ranks that hold this stage: one, or two
};

/// What goes into and comes out of the model, of one micro-batch.
struct MicroBatch {
  Buffer ids, targets, loss;
};

class PipelineProgram final : public LayerProgram {
 public:
  PipelineProgram(Rank& rank, const LayerConfig& config)
      : rank_{rank},
        config_{config},
        schedule_{*config_.pipeline.schedule},
        plan_{pipeline::plan_rank(schedule_, config.parallel.pp.position)},
        takes_turns_{std::ranges::none_of(
            plan_.instructions,
            [](const Instruction& instruction) { return instruction.step.action.act == Act::W; })},
        fences_(plan_.instructions.size() + 1),
        scratch_{make_token_scratch(rank, config.parallel, {config.tokens(), config.shape.hidden},
                                    config.dtype)},
        stage_index_(static_cast<std::size_t>(schedule_.num_stages), -1) {
    config_.accumulate_gradients = true;
    const std::vector<int> stages = schedule_.stages_of(config.parallel.pp.position);
    stages_.reserve(stages.size());
    for (const int stage : stages) {
      at(stage_index_, stage) = static_cast<int>(stages_.size());
      stages_.push_back(make_stage(stage));
    }
    for (const Instruction& instruction : plan_.instructions)
      names_.push_back(to_text(instruction.step));
    make_micro_batches();
  }

  void forward() override { refuse(); }
  void backward(Part) override { refuse(); }

  void step() override {
    if (plan_.signals_start) fences_.front() = rank_.signal(Lane::compute);
    zero_gradients();
    for (std::size_t i = 0; i < plan_.instructions.size(); ++i) {
      const Instruction& instruction = plan_.instructions[i];
      const auto scope = rank_.scope(names_[i]);
      for (const int event : instruction.awaits) rank_.await(at(fences_, event), instruction.lane);
      if (is_compute(instruction.step.action.act))
        compute(instruction);
      else
        exchange(instruction);
      if (instruction.signals) fences_[i + 1] = rank_.signal(instruction.lane);
    }
    sum_gradients();
    for (const int event : plan_.awaits_at_end) rank_.await(at(fences_, event), Lane::compute);
  }

  NamedTensors tensors() const override {
    NamedTensors list;
    for (const LocalStage& stage : stages_) {
      stage.layers.list_weights(list);
      for (const LocalStage::Working& working : stage.states) list_inputs(stage, working, list);
    }
    return list;
  }

 private:
  [[noreturn]] static void refuse() {
    SHARDMARK_CHECK(false, "a pipeline has only steps: its forwards and backwards are interleaved");
  }

  [[nodiscard]] Buffer allocate_tokens(Category category) const {
    return rank_.allocate({config_.parallel.local_tokens(config_.tokens()), config_.shape.hidden},
                          config_.dtype, category);
  }

  [[nodiscard]] LocalStage make_stage(int stage) {
    LocalStage local{
        .layers = {rank_, config_, stage_range(config_, stage), scratch_, &recomputed_}};
    const Held& num = at(plan_.num_buffers, stage);
    for (int i = 0; i < num.x; ++i) local.x.push_back(allocate_tokens(Category::activation));
    for (int i = 0; i < num.dy; ++i) local.dy.push_back(allocate_tokens(Category::gradient));
    for (int i = 0; i < num.state; ++i) local.states.push_back(make_working(local, stage));
    NamedTensors weights;
    local.layers.list_weights(weights);
    for (const NamedTensor& named : weights) {
      if (named.role == Role::gradient) local.gradients.push_back(named.tensor);
      if (config_.tied_embeddings &&
          (named.name == "embedding/table_grad" || named.name == "head/logits/weight_grad"))
        local.tied.push_back(named.tensor);
    }
    local.copies = copies_of(config_, stage);
    return local;
  }

  [[nodiscard]] LocalStage::Working make_working(LocalStage& local, int stage) const {
    if (!takes_turns_) return {.state = local.layers.make_state(rank_)};
    LocalStage::Working working;
    if (stage > 0) working.kept_dx = allocate_tokens(Category::gradient);
    const Rank::Sharing turns = rank_.share(Category::gradient, local.shared);
    working.state = local.layers.make_state(rank_);
    return working;
  }

  void make_micro_batches() {
    const std::int64_t tokens = config_.tokens();
    for (int micro = 0; micro < schedule_.num_micro; ++micro) {
      MicroBatch batch;
      if (is_here(0, micro)) batch.ids = rank_.allocate({tokens}, DType::i32, Category::activation);
      if (is_here(last_stage(), micro)) {
        batch.targets = rank_.allocate({tokens}, DType::i32, Category::activation);
        batch.loss = rank_.allocate({tokens}, DType::f32, Category::activation);
      }
      micro_batches_.push_back(std::move(batch));
    }
  }

  void zero_gradients() {
    const auto scope = rank_.scope("zero_gradients");
    for (const LocalStage& stage : stages_)
      for (const Tensor& gradient : stage.gradients) fill(rank_, gradient, 0);
  }

  void compute(const Instruction& instruction) {
    switch (instruction.step.action.act) {
      case Act::F:
        return forward(instruction);
      case Act::I:
        return backward(instruction, Part::input);
      case Act::W:
        return backward(instruction, Part::weight);
      default:
        return backward(instruction, Part::both);
    }
  }

  void forward(const Instruction& instruction) {
    const auto [act, stage, micro] = instruction.step.action;
    LocalStage& local = stage_at(stage);
    LocalStage::Working& working = at(local.states, instruction.held.state);
    MicroBatch& batch = at(micro_batches_, micro);
    Tensor x;
    if (stage == 0)
      copy(rank_, batch.ids.tensor(), working.state.embedding->ids.tensor());
    else
      x = at(local.x, instruction.held.x).tensor();
    if (instruction.before.state >= 0)
      copy(rank_, at(stage_at(stage - 1).states, instruction.before.state).y, x);
    if (stage == last_stage())
      copy(rank_, batch.targets.tensor(), working.state.head->targets.tensor());
    working.y = local.layers.forward(rank_, working.state, x);
    if (stage == last_stage()) copy(rank_, working.y, batch.loss.tensor());
  }

  void backward(const Instruction& instruction, Part part) {
    const auto [act, stage, micro] = instruction.step.action;
    LocalStage& local = stage_at(stage);
    LocalStage::Working& working = at(local.states, instruction.held.state);
    const Tensor dy = stage == last_stage() ? Tensor{} : at(local.dy, instruction.held.dy).tensor();
    working.dx = local.layers.backward(rank_, working.state, dy, part, working.kept_dx.tensor());
    if (instruction.before.dy >= 0)
      copy(rank_, working.dx, at(stage_at(stage - 1).dy, instruction.before.dy).tensor());
  }

  /// One message, or one each way.
  void exchange(const Instruction& instruction) {
    SendRecv message;
    const auto add = [&](const Action& action, const Held& held) {
      const Action other = other_end(action);
      const int peer = schedule_.rank_of(other.stage, other.micro);
      LocalStage& local = stage_at(action.stage);
      if (is_send(action.act)) {
        const LocalStage::Working& working = at(local.states, held.state);
        message.x = action.act == Act::send_F ? working.y : working.dx;
        message.to = peer;
      } else {
        message.y =
            (action.act == Act::recv_F ? at(local.x, held.x) : at(local.dy, held.dy)).tensor();
        message.from = peer;
      }
    };
    add(instruction.step.action, instruction.held);
    if (instruction.step.with) add(*instruction.step.with, instruction.with);
    send_recv(rank_, message.x, message.to, message.y, message.from, config_.parallel.pp,
              instruction.lane);
  }

  /// Over tp what its ranks have parts of; then over the ranks that hold the same stage, in this
  /// copy of the model and in the others; then over the ends of a tie.
  void sum_gradients() {
    const auto scope = rank_.scope("sum_gradients");
    for (const LocalStage& stage : stages_) stage.layers.sum_gradients(rank_);
    for (const LocalStage& stage : stages_)
      for (const Group& group : {stage.copies, config_.parallel.dp}) {
        if (group.size == 1) continue;
        rank_.order(Lane::compute, Lane::dp);
        for (const Tensor& gradient : stage.gradients) all_reduce(rank_, gradient, group, Lane::dp);
      }
    sum_tied_gradients();
    rank_.order(Lane::dp, Lane::compute);
  }

  void sum_tied_gradients() {
    std::vector<Tensor> here;
    for (const LocalStage& stage : stages_)
      here.insert(here.end(), stage.tied.begin(), stage.tied.end());
    if (here.empty()) return;
    const auto scope = rank_.scope("tied");
    if (here.size() == 2) {
      rank_.order(Lane::dp, Lane::compute);
      combine(rank_, here[1], here[0], Reduction::sum);
      copy(rank_, here[0], here[1]);
    } else {
      rank_.order(Lane::compute, Lane::dp);
      all_reduce(rank_, here[0], ends_of_tie(config_), Lane::dp);
    }
  }

  /// Of all micro-batches their ids, targets and losses; of every state the rest of its inputs.
  void list_inputs(const LocalStage& stage, const LocalStage::Working& working,
                   NamedTensors& into) const {
    NamedTensors state;
    stage.layers.list_state(working.state, state);
    const bool is_first = &working == &stage.states.front();
    for (const NamedTensor& named : state) {
      Buffer MicroBatch::*kept = nullptr;
      if (named.name == "embedding/ids") kept = &MicroBatch::ids;
      if (named.name == "head/targets") kept = &MicroBatch::targets;
      if (named.name == "head/loss") kept = &MicroBatch::loss;
      if (kept == nullptr) {
        if (named.role == Role::input) into.push_back(named);
        continue;
      }
      for (std::size_t micro = 0; is_first && micro < micro_batches_.size(); ++micro) {
        const Buffer& buffer = micro_batches_[micro].*kept;
        if (!buffer.tensor()) continue;
        const int number = config_.parallel.dp.position * schedule_.num_micro;
        const Prefix prefix{into, message("micro", number + static_cast<int>(micro))};
        into.push_back(named);
        into.back().tensor = buffer.tensor();
      }
    }
  }

  [[nodiscard]] int last_stage() const { return schedule_.num_stages - 1; }
  [[nodiscard]] bool is_here(int stage, int micro) const {
    return schedule_.rank_of(stage, micro) == config_.parallel.pp.position;
  }
  [[nodiscard]] LocalStage& stage_at(int stage) { return at(stages_, at(stage_index_, stage)); }

  Rank& rank_;
  LayerConfig config_;
  const pipeline::Schedule& schedule_;
  pipeline::RankPlan plan_;
  bool takes_turns_;  ///< a backward is one piece: gradients between layers end with it
  std::vector<std::string> names_;  ///< of the instructions
  std::vector<Fence> fences_;       ///< of events
  TokenScratch scratch_;
  Recomputed recomputed_;
  std::vector<int> stage_index_;  ///< [stage]
  std::vector<LocalStage> stages_;
  std::vector<MicroBatch> micro_batches_;
};

/// Two members of `pp`, or one if they are the same.
Group pair_of(const Group& pp, int first, int second) {
  const int low = std::min(first, second), distance = std::max(first, second) - low;
  if (distance == 0) return {Axis::pp, pp.world_rank(pp.position), 1, 1, 0};
  return {Axis::pp, pp.world_rank(low), distance * pp.stride, 2, pp.position == low ? 0 : 1};
}

}  // namespace

Group copies_of(const LayerConfig& config, int stage) {
  const pipeline::Schedule& schedule = *config.pipeline.schedule;
  const auto s = static_cast<std::size_t>(stage);
  const int first = schedule.rank_of_stage[s];
  return pair_of(config.parallel.pp, first,
                 schedule.is_two_way() ? schedule.rank_of_second_copy[s] : first);
}

Group ends_of_tie(const LayerConfig& config) {
  const pipeline::Schedule& schedule = *config.pipeline.schedule;
  const Group& pp = config.parallel.pp;
  const int first = schedule.rank_of_stage.front(), last = schedule.rank_of_stage.back();
  // DualPipe has both ends on both ranks.
  const bool is_end = !schedule.is_two_way() && (pp.position == first || pp.position == last);
  return is_end ? pair_of(pp, first, last) : pair_of(pp, pp.position, pp.position);
}

std::unique_ptr<LayerProgram> make_pipeline_program(Rank& rank, const LayerConfig& config) {
  return std::make_unique<PipelineProgram>(rank, config);
}

}  // namespace shardmark
