// Copies from the input are put off: the slot remembers which input slot it stands for
// (`stands_for`) and is read from there. A reduction into such a slot then receives straight into
// it and adds the input, so that out of place neither the first copy of a plan nor a landing place
// costs anything.

#include "collectives/plan.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <vector>

namespace shardmark {
namespace {

Tensor flat_part(const Tensor& tensor, std::int64_t first, std::int64_t numel) {
  Tensor part = tensor;
  part.shape = Shape{numel};
  part.row_stride = numel;
  part.offset += first;
  if (part.data != nullptr) part.data += first * size_of(part.dtype);
  return part;
}

bool same_place(const Tensor& a, std::int64_t a_first, const Tensor& b, std::int64_t b_first) {
  if (!a || !b) return false;
  if (a.data != nullptr || b.data != nullptr)
    return a.data + a_first * size_of(a.dtype) == b.data + b_first * size_of(b.dtype);
  return a.buffer == b.buffer && a.offset + a_first == b.offset + b_first;
}

class Binder {
 public:
  /// Without `ops` nothing is emitted: what remains is how much scratch it takes.
  Binder(const Plan& plan, const Call& call, const Tensor& scratch, std::vector<Op>* ops)
      : plan_{plan},
        call_{call},
        rank_{call.group.position},
        num_input_{plan.num_input()},
        num_output_{plan.num_output()},
        x_{call.x},
        y_{call.collective == Collective::all_reduce && !call.y ? call.x : call.y},
        scratch_{scratch},
        ops_{ops},
        stands_for_(static_cast<std::size_t>(plan.num_slots()), -1) {
    SHARDMARK_CHECK(plan.collective == call.collective && plan.num_ranks == call.group.size, "a ",
                    plan.num_ranks, "-rank plan for ", name_of(plan.collective), " cannot do ",
                    name_of(call.collective), " on ", call.group.size, " ranks");
    SHARDMARK_CHECK(!facts_of(plan.collective).has_root || plan.root == call.root,
                    "a plan with root ", plan.root, " cannot do ", name_of(call.collective),
                    " with root ", call.root);
    measure();
  }

  void run() {
    find_shared();
    if (input_is_overwritten()) save_input();
    for (const Step& step : plan_.steps_of(rank_)) {
      if (step.kind == Step::Kind::copy)
        copy(step);
      else
        exchange(step);
    }
    if (!plan_.has_output(rank_)) return;
    write_out(num_input_, num_output_);
    if (call_.reduction == Reduction::avg && facts_of(plan_.collective).has_reduction &&
        plan_.num_ranks > 1 && numel(num_input_, num_output_) > 0)
      emit(Divide{view(num_input_, num_output_), plan_.num_ranks});
  }

  [[nodiscard]] std::int64_t scratch_numel() const { return landing_ + landing_numel_; }
  [[nodiscard]] std::int64_t numel_sent() const { return numel_sent_; }
  [[nodiscard]] DType dtype() const { return x_ ? x_.dtype : y_.dtype; }

 private:
  /// Lengths of blocks.
  void measure() {
    const CollectiveFacts& facts = facts_of(plan_.collective);
    const int n = plan_.num_ranks;
    if (plan_.collective == Collective::all_to_all_v) {
      SHARDMARK_CHECK(call_.counts.size() == static_cast<std::size_t>(n) * call_.group.size,
                      "all_to_all_v on ", n, " ranks with ", call_.counts.size(), " counts");
      input_start_.push_back(0);
      output_start_.push_back(0);
      for (int peer = 0; peer < n; ++peer) {
        input_start_.push_back(input_start_.back() + count_of(rank_, peer));
        output_start_.push_back(output_start_.back() + count_of(peer, rank_));
      }
    } else if (plan_.collective != Collective::barrier) {
      const Tensor& one = plan_.has_input(rank_) ? x_ : y_;
      const bool has_n =
          plan_.has_input(rank_) ? facts.input_has_n_blocks : facts.output_has_n_blocks;
      SHARDMARK_CHECK(one && one.contiguous() && (!has_n || one.numel() % n == 0),
                      name_of(plan_.collective), ": the tensor of shape ", one.shape.to_string(),
                      " is not ", has_n ? "a contiguous row of equal blocks" : "contiguous");
      block_ = has_n ? one.numel() / n : one.numel();
    }
    input_copy_ = start_in_blocks(plan_.num_scratch);
    landing_ = input_copy_;
  }

  [[nodiscard]] std::int64_t count_of(int from, int to) const {
    return call_.counts[static_cast<std::size_t>(from) * static_cast<std::size_t>(plan_.num_ranks) +
                        static_cast<std::size_t>(to)];
  }
  /// Where slot `slot` of a region begins.
  [[nodiscard]] std::int64_t start_in_blocks(std::int64_t slot) const {
    const std::int64_t slots = plan_.slots_per_block;
    return slot / slots * block_ + slot % slots * block_ / slots;
  }
  /// `base` is the first slot of the region that `slot`, or the slot before it, is in.
  [[nodiscard]] std::int64_t start(int base, int slot) const {
    if (plan_.collective != Collective::all_to_all_v) return start_in_blocks(slot - base);
    return (base == 0 ? input_start_ : output_start_)[static_cast<std::size_t>(slot - base)];
  }
  [[nodiscard]] int base_of(int slot) const {
    if (slot < num_input_) return 0;
    return slot < num_input_ + num_output_ ? num_input_ : num_input_ + num_output_;
  }
  [[nodiscard]] std::int64_t numel(int slot, int count) const {
    const int base = base_of(slot);
    return start(base, slot + count) - start(base, slot);
  }
  [[nodiscard]] Tensor view(int slot, int count) const {
    const int base = base_of(slot);
    const Tensor& region = base == 0 ? x_ : base == num_input_ ? y_ : scratch_;
    return flat_part(region, start(base, slot), numel(slot, count));
  }

  /// Input slot [first_shared_, +num_shared_) is output slot num_input_ + shared_output_ ...
  void find_shared() {
    if (!plan_.has_input(rank_) || !plan_.has_output(rank_) || block_ == 0) return;
    const CollectiveFacts& facts = facts_of(plan_.collective);
    if (facts.input_has_n_blocks && facts.output_has_n_blocks) return;
    const int own = rank_ * plan_.slots_per_block;
    const int input = facts.input_has_n_blocks ? own : 0;
    const int output = facts.output_has_n_blocks ? own : 0;
    if (!same_place(x_, start(0, input), y_, start(num_input_, num_input_ + output))) return;
    first_shared_ = input;
    num_shared_ = plan_.slots_per_block;
    shared_output_ = num_input_ + output;
  }
  [[nodiscard]] bool is_shared(int slot) const {
    return slot >= first_shared_ && slot < first_shared_ + num_shared_;
  }
  [[nodiscard]] bool is_itself(int input, int output) const {
    return is_shared(input) && output == shared_output_ + input - first_shared_;
  }

  /// In place, the plan may read input where it already has output.
  [[nodiscard]] bool input_is_overwritten() const {
    if (num_shared_ == 0) return false;
    std::vector<bool> written(static_cast<std::size_t>(num_shared_));
    const auto mark = [&](int slot, int count) {
      for (int s = std::max(slot, shared_output_);
           s < std::min(slot + count, shared_output_ + num_shared_); ++s)
        written[static_cast<std::size_t>(s - shared_output_)] = true;
    };
    const auto was_written = [&](int slot, int count) {
      for (int s = std::max(slot, first_shared_);
           s < std::min(slot + count, first_shared_ + num_shared_); ++s)
        if (written[static_cast<std::size_t>(s - first_shared_)]) return true;
      return false;
    };
    for (const Step& step : plan_.steps_of(rank_)) {
      const bool copies = step.kind == Step::Kind::copy;
      const bool stores = !copies && step.from >= 0 && step.receive == Step::Receive::store;
      if (stores) mark(step.target, step.count_in);
      if ((copies || step.to >= 0) && was_written(step.source, step.count)) return true;
      if (copies && !is_itself(step.source, step.target)) mark(step.target, step.count);
      if (!copies && step.from >= 0) mark(step.target, step.count_in);
    }
    return false;
  }

  void save_input() {
    const std::int64_t all = numel(0, num_input_);
    landing_ += all;
    const Tensor saved = flat_part(scratch_, input_copy_, all);
    emit(Copy{view(0, num_input_), saved});
    x_ = saved;
    num_shared_ = 0;
  }

  void emit(const Op& op) {
    if (ops_ != nullptr) ops_->push_back(op);
  }

  int& stands_for(int slot) { return stands_for_[static_cast<std::size_t>(slot)]; }

  /// The input slot that all of [slot, slot + count) stand for, in order; -1: they differ.
  int common_input(int slot, int count) {
    const int first = stands_for(slot);
    for (int i = 1; first >= 0 && i < count; ++i)
      if (stands_for(slot + i) != first + i) return -1;
    return first;
  }

  /// Does the copies that were put off.
  void write_out(int slot, int count) {
    for (int i = 0; i < count;) {
      int run = 1;
      const int input = stands_for(slot + i);
      while (i + run < count && input >= 0 && stands_for(slot + i + run) == input + run) ++run;
      if (input >= 0) copy_now(input, slot + i, run);
      i += run;
    }
  }

  void copy_now(int source, int target, int count) {
    if (numel(source, count) > 0) emit(Copy{view(source, count), view(target, count)});
    settle(target, count);
  }

  /// The slots' own memory holds what they hold.
  void settle(int slot, int count) {
    for (int i = 0; i < count; ++i) stands_for(slot + i) = -1;
  }

  void copy(const Step& step) {
    for (int i = 0; i < step.count;) {
      const int input = origin(step.source + i);
      int run = 1;
      while (i + run < step.count && puts_off(origin(step.source + i + run)) == puts_off(input) &&
             origin(step.source + i + run) == input + run)
        ++run;
      const int target = step.target + i;
      if (is_itself(input, target))
        settle(target, run);
      else if (!puts_off(input))
        copy_now(input, target, run);
      else
        for (int k = 0; k < run; ++k) stands_for(target + k) = input + k;
      i += run;
    }
  }
  [[nodiscard]] int origin(int slot) { return stands_for(slot) >= 0 ? stands_for(slot) : slot; }
  /// Input that no output overwrites stays what it is.
  [[nodiscard]] bool puts_off(int slot) const { return slot < num_input_ && !is_shared(slot); }

  void exchange(const Step& step) {
    if (plan_.collective == Collective::barrier) {
      emit(SendRecv{{}, {}, call_.group, step.to, step.from});
      return;
    }
    SendRecv message{{}, {}, call_.group, -1, -1};
    if (step.to >= 0 && step.count > 0 && numel(step.source, step.count) > 0) {
      message.to = step.to;
      message.x = outgoing(step.source, step.count);
      numel_sent_ += message.x.numel();
    }
    Combine combine{{}, {}, call_.reduction};
    if (step.from >= 0 && step.count_in > 0 && numel(step.target, step.count_in) > 0) {
      message.from = step.from;
      message.y = step.receive == Step::Receive::reduce
                      ? reduced(step.target, step.count_in, combine)
                      : view(step.target, step.count_in);
      settle(step.target, step.count_in);
    }
    if (message.to >= 0 || message.from >= 0) emit(message);
    if (combine.y) emit(combine);
  }

  [[nodiscard]] Tensor outgoing(int slot, int count) {
    if (const int input = common_input(slot, count); input >= 0) return view(input, count);
    write_out(slot, count);
    return view(slot, count);
  }

  /// Where to receive what `combine` then adds.
  [[nodiscard]] Tensor reduced(int slot, int count, Combine& combine) {
    combine.y = view(slot, count);
    if (const int input = common_input(slot, count); input >= 0) {
      combine.x = view(input, count);
      return combine.y;
    }
    write_out(slot, count);
    landing_numel_ = std::max(landing_numel_, combine.y.numel());
    combine.x = flat_part(scratch_, landing_, combine.y.numel());
    return combine.x;
  }

  const Plan& plan_;
  const Call& call_;
  int rank_, num_input_, num_output_;
  Tensor x_, y_;
  Tensor scratch_;
  std::vector<Op>* ops_;
  std::vector<int> stands_for_;  ///< input slot, or -1: what is in the slot
  std::vector<std::int64_t> input_start_, output_start_;  ///< all_to_all_v, by peer
  std::int64_t block_{0}, input_copy_{0}, landing_{0}, landing_numel_{0}, numel_sent_{0};
  int first_shared_{0}, num_shared_{0}, shared_output_{0};
};

}  // namespace

BoundPlan::BoundPlan(const Plan& plan, const Call& call, const Tensor& scratch) {
  const std::int64_t needed = scratch_numel(plan, call);
  SHARDMARK_CHECK(needed == 0 || scratch.numel() >= needed, "the ", plan.algorithm, ' ',
                  name_of(plan.collective), " needs ", needed, " elements of scratch, not ",
                  scratch.numel());
  // Each step becomes up to two ops; the end adds a few.
  ops_.reserve(2 * plan.steps_of(call.group.position).size() + 2);
  Binder binder{plan, call, scratch, &ops_};
  binder.run();
  if (plan.collective != Collective::barrier)
    bytes_sent_ = binder.numel_sent() * size_of(binder.dtype());
}

std::int64_t BoundPlan::scratch_numel(const Plan& plan, const Call& call) {
  Binder binder{plan, call, Tensor{}, nullptr};
  binder.run();
  return binder.scratch_numel();
}

}  // namespace shardmark
