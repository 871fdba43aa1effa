#pragma once

// Attention cores on the record backend: what the op lists of every core have to satisfy.

#include "core/record/deadlock.hpp"
#include "core/record/matching.hpp"
#include "core/record/memory.hpp"
#include "core/record/mutate.hpp"
#include "core/record/races.hpp"
#include "tests/context/cores.hpp"
#include "tests/record/recorded.hpp"

#include <gmock/gmock.h>

namespace shardmark::test {

/// The ops of all ranks of a case: `steps` times forward and backward between neighbours on the
/// compute lane, which write q, k, v and the gradient of o and read o and the other gradients.
/// Paths begin with "fwd" or "bwd"; those of neighbours are empty.
class RecordedSteps {
 public:
  explicit RecordedSteps(const CoreCase& c, int steps = 1) {
    const Mesh mesh{{.cp = c.ranks}};
    for (int id = 0; id < c.ranks; ++id) {
      ranks_.push_back(std::make_unique<RecordedRank>(id, mesh));
      Rank& rank = ranks_.back()->rank;
      programs_.push_back(std::make_unique<CoreProgram>(rank, c.on(rank.group(Axis::cp))));
      for (int step = 0; step < steps; ++step) run(rank, *programs_.back());
      ops.push_back(ranks_.back()->list.ops);
    }
  }

  /// Adds up `value(op)` over the ops of one rank whose path begins with `phase`.
  template <class Value>
  [[nodiscard]] double sum(int rank, std::string_view phase, const Value& value) const {
    double total = 0;
    for (const OpRecord& record : ops[static_cast<std::size_t>(rank)])
      if (record.path->starts_with(phase)) total += value(record.op);
    return total;
  }
  [[nodiscard]] double bytes_wire(int rank, std::string_view phase) const {
    return sum(rank, phase, bytes_wire_of);
  }
  [[nodiscard]] double bytes_sent(int rank, std::string_view phase) const {
    return sum(rank, phase, [](const Op& op) {
      const auto* message = std::get_if<SendRecv>(&op);
      return message == nullptr ? 0.0 : static_cast<double>(message->x.bytes());
    });
  }
  [[nodiscard]] double flops(std::string_view phase) const {
    double total = 0;
    for (int rank = 0; rank < static_cast<int>(ops.size()); ++rank)
      total += sum(rank, phase, flops_of);
    return total;
  }
  [[nodiscard]] int num_attentions(int rank) const {
    return static_cast<int>(
        sum(rank, "fwd", [](const Op& op) { return std::holds_alternative<Attention>(op); }));
  }

  /// What the core of a rank allocates, without the tensors of its caller.
  [[nodiscard]] double core_bytes(int rank) const {
    const auto at = static_cast<std::size_t>(rank);
    std::int64_t bytes = memory_timeline(ranks_[at]->list.memory).peak.total();
    const CoreProgram& program = *programs_[at];
    for (const Buffer* buffer : {&program.qkv, &program.o, &program.d_o, &program.dqkv})
      bytes -= buffer->tensor().bytes();
    return static_cast<double>(bytes);
  }

  std::vector<std::vector<OpRecord>> ops;

 private:
  static void run(Rank& rank, CoreProgram& program) {
    fill(rank, program.qkv.tensor(), 0);
    {
      const auto scope = rank.scope("fwd");
      program.forward();
    }
    copy(rank, program.o.tensor(), program.d_o.tensor());
    {
      const auto scope = rank.scope("bwd");
      program.backward();
    }
    copy(rank, program.dqkv.tensor(), program.qkv.tensor());
  }

  std::vector<std::unique_ptr<RecordedRank>> ranks_;
  std::vector<std::unique_ptr<CoreProgram>> programs_;  ///< keep what the ops point to
};

/// Every number of ranks, order and mask for one kind.
inline std::vector<CoreCase> all_cases(ContextKind kind, std::vector<int> ranks) {
  std::vector<CoreCase> cases;
  for (const int count : ranks)
    for (const TokenOrder order : all_orders)
      for (const Mask& mask : all_masks())
        for (const bool overlap : {false, true})
          cases.push_back(core_case(kind, order, count, mask, overlap));
  return cases;
}

inline void expect_clean(const CoreCase& c) {
  const RecordedSteps steps{c, 2};
  for (const std::vector<OpRecord>& ops : steps.ops)
    EXPECT_THAT(find_races(ops), testing::IsEmpty()) << c;
  EXPECT_THAT(check_matching(steps.ops), testing::IsEmpty()) << c;
  EXPECT_THAT(find_deadlock(steps.ops), testing::IsEmpty()) << c;
}

/// All ranks together compute the pairs of the whole sequence once, and no op computes none.
inline void expect_flops_of_the_whole(const CoreCase& c) {
  const RecordedSteps steps{c};
  const Places all = Places::all(c.config.seq);
  const double pairs = visible_pairs({c.config.causal, c.config.window, c.config.starts}, all, all);
  const auto columns = static_cast<double>(c.config.batch * c.config.heads * c.config.head_dim);
  EXPECT_DOUBLE_EQ(steps.flops("fwd"), 4 * columns * pairs) << c;
  EXPECT_DOUBLE_EQ(steps.flops("bwd"), 10 * columns * pairs) << c;
  for (const std::vector<OpRecord>& ops : steps.ops)
    for (const OpRecord& record : ops) {
      const bool attends = std::holds_alternative<Attention>(record.op) ||
                           std::holds_alternative<AttentionBackward>(record.op);
      EXPECT_TRUE(!attends || flops_of(record.op) > 0) << c << ": " << to_string(record);
    }
}

/// Deletes every Signal and every Await, one at a time: each is missed. Returns how many there are.
inline int expect_every_fence_needed(const CoreCase& c) {
  const RecordedSteps steps{c, 2};
  int num_deleted = 0;
  for (const std::vector<OpRecord>& ops : steps.ops)
    for (std::size_t position = 0; position < ops.size(); ++position) {
      if (kind_of(ops[position].op) != OpKind::ordering) continue;
      ++num_deleted;
      EXPECT_THAT(find_races(without_op(ops, position)), testing::Not(testing::IsEmpty()))
          << c << ": nobody misses " << to_string(ops[position]);
    }
  return num_deleted;
}

}  // namespace shardmark::test
