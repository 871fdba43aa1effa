#pragma once

// Runs NCCL calls of all members on host memory: what NCCL's manual says of each.

#include "core/cuda/translate/call.hpp"
#include "tests/support/collective_data.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <queue>
#include <utility>
#include <vector>

namespace shardmark::cuda::host {

/// Element i of all members' data, combined in NCCL's way: ncclAvg multiplies before it adds.
inline double combined(const std::vector<NcclCall>& calls, std::int64_t i) {
  const NcclCall& first = calls.front();
  const double factor =
      first.reduction == Reduction::avg ? 1.0 / static_cast<double>(calls.size()) : 1.0;
  double result = conformance::read_element(first.from, first.dtype, i) * factor;
  for (std::size_t member = 1; member < calls.size(); ++member) {
    const double value = conformance::read_element(calls[member].from, first.dtype, i) * factor;
    if (first.reduction == Reduction::prod)
      result *= value;
    else if (first.reduction == Reduction::max)
      result = std::max(result, value);
    else if (first.reduction == Reduction::min)
      result = std::min(result, value);
    else
      result += value;
  }
  return result;
}

/// One collective call of each member.
inline void run_collective(const std::vector<NcclCall>& calls) {
  const NcclCall& first = calls.front();
  const auto n = static_cast<std::int64_t>(calls.size());
  const std::int64_t count = first.count;
  for (const NcclCall& call : calls) {
    EXPECT_EQ(call.function, first.function);
    EXPECT_EQ(call.count, count);
    EXPECT_EQ(call.dtype, first.dtype);
    EXPECT_EQ(call.reduction, first.reduction);
    EXPECT_EQ(call.peer, first.peer);
  }
  // All is read before anything is written: in place is allowed.
  const bool gathers = first.function == NcclFunction::all_gather;
  const bool casts = first.function == NcclFunction::broadcast;
  const std::int64_t num_results =
      first.function == NcclFunction::reduce_scatter || gathers ? n * count : count;
  std::vector<double> results;
  for (std::int64_t i = 0; i < num_results; ++i) {
    if (gathers)
      results.push_back(conformance::read_element(calls[static_cast<std::size_t>(i / count)].from,
                                                  first.dtype, i % count));
    else if (casts)
      results.push_back(conformance::read_element(calls[static_cast<std::size_t>(first.peer)].from,
                                                  first.dtype, i));
    else
      results.push_back(combined(calls, i));
  }
  for (std::int64_t member = 0; member < n; ++member) {
    const NcclCall& call = calls[static_cast<std::size_t>(member)];
    if (call.function == NcclFunction::reduce && member != call.peer) continue;
    const bool scatters = call.function == NcclFunction::reduce_scatter;
    const std::int64_t begin = scatters ? member * count : 0;
    const std::int64_t written = gathers ? n * count : count;
    for (std::int64_t i = 0; i < written; ++i)
      conformance::write_element(call.to, call.dtype, i,
                                 results[static_cast<std::size_t>(begin + i)]);
  }
}

/// Sends and receives of all members: matched in order between each two.
inline void run_messages(const std::vector<const NcclGroup*>& groups) {
  struct Message {
    std::vector<std::byte> bytes;
    std::int64_t count;
    DType dtype;
  };
  std::map<std::pair<int, int>, std::queue<Message>> mail;
  for (const NcclGroup* group : groups)
    for (const NcclCall& call : group->calls)
      if (call.function == NcclFunction::send)
        mail[{group->group.position, call.peer}].push(
            {{call.from, call.from + call.count * size_of(call.dtype)}, call.count, call.dtype});
  for (const NcclGroup* group : groups)
    for (const NcclCall& call : group->calls) {
      if (call.function != NcclFunction::receive) continue;
      auto& queue = mail[{call.peer, group->group.position}];
      ASSERT_FALSE(queue.empty()) << "member " << group->group.position << " waits for "
                                  << call.peer << " forever";
      EXPECT_EQ(queue.front().count, call.count);
      EXPECT_EQ(queue.front().dtype, call.dtype);
      std::copy(queue.front().bytes.begin(), queue.front().bytes.end(), call.to);
      queue.pop();
    }
  for (const auto& [ends, queue] : mail)
    EXPECT_TRUE(queue.empty()) << "a message from " << ends.first << " to " << ends.second
                               << " is never received";
}

}  // namespace shardmark::cuda::host
