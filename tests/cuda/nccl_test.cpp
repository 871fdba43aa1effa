// What NCCL is asked for, in which order, and what becomes of errors. No GPU: the library is one
// that writes down its calls.

#include "core/cuda/nccl.hpp"

#include "core/cuda/translate/translate.hpp"
#include "core/launch.hpp"
#include "tests/cuda/fake_nccl.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>

namespace shardmark::cuda {
namespace {

using conformance::Data;
using conformance::value_at;
using testing::ElementsAre;
using testing::HasSubstr;

Group group_of(const Transport& transport, Axis axis = Axis::tp) {
  return {axis, 0, 1, transport.size(), transport.rank()};
}

/// A rank with communicators over a fake library; destroyed in this order.
struct Fixture {
  Fixture(FakeNccl& world, Transport& control)
      : transport{control},
        library{world},
        communicators{std::make_unique<NcclCommunicators>(control, FakeNccl::functions(),
                                                          FakeNccl::memory())} {}
  void run(const Op& op, Lane lane, void* stream = nullptr) {
    const Translation translation = translate(op, {});
    for (const Call& call : translation.calls)
      if (const auto* group = std::get_if<NcclGroup>(&call))
        communicators->run(*group, lane, stream);
  }
  Transport& transport;
  FakeNcclRank library;
  std::unique_ptr<NcclCommunicators> communicators;
};

void run_ranks(int size, const std::function<void(Fixture&)>& body, FakeNccl* given = nullptr) {
  FakeNccl own;
  FakeNccl& world = given == nullptr ? own : *given;
  run_threads(size, [&](Transport& transport) {
    transport.set_wait_policy({.yield = true, .timeout_s = 30});
    Fixture fixture{world, transport};
    body(fixture);
  });
}

/// What the first PeerError or Error of `function` says, with its kind.
std::string error_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const PeerError& error) {
    return message("PeerError: ", error.what());
  } catch (const Error& error) {
    return message("Error: ", error.what());
  }
  return "no error";
}

TEST(Nccl, TypesAndReductionsHaveTheSizeAndTheNameOfOurs) {
  EXPECT_EQ(nccl_type_of(DType::f32), ncclFloat32);
  EXPECT_EQ(nccl_type_of(DType::bf16), ncclBfloat16);
  EXPECT_EQ(nccl_type_of(DType::i32), ncclInt32);
  EXPECT_EQ(nccl_type_of(DType::f64), ncclFloat64);
  EXPECT_EQ(nccl_type_of(DType::f16), ncclFloat16);
  EXPECT_EQ(nccl_type_of(DType::i8), ncclInt8);
  EXPECT_EQ(nccl_op_of(Reduction::sum), ncclSum);
  EXPECT_EQ(nccl_op_of(Reduction::prod), ncclProd);
  EXPECT_EQ(nccl_op_of(Reduction::max), ncclMax);
  EXPECT_EQ(nccl_op_of(Reduction::min), ncclMin);
  EXPECT_EQ(nccl_op_of(Reduction::avg), ncclAvg);
}

TEST(Nccl, ACommunicatorForEachGroupAndChannel) {
  FakeNccl world;
  run_ranks(
      3,
      [](Fixture& rank) {
        const Group all = group_of(rank.transport);
        const Group line = group_of(rank.transport, Axis::pp);
        NcclCommunicators& communicators = *rank.communicators;
        communicators.connect(all, Lane::tp);
        communicators.connect(all, Lane::tp);
        communicators.connect(all, Lane::dp);
        communicators.connect(line, Lane::pp_fwd_send);
        communicators.connect(line, Lane::pp_fwd_recv);
        communicators.connect({Axis::ep, rank.transport.rank(), 1, 1, 0}, Lane::ep);
        const int me = rank.transport.rank();
        if (me != 1) communicators.connect({Axis::cp, 0, 2, 2, me / 2}, Lane::cp);
        const std::string init = message("init ", me, " of 3");
        if (me == 1) {
          EXPECT_THAT(rank.library.log, ElementsAre(init, init, init));
        } else {
          EXPECT_THAT(rank.library.log,
                      ElementsAre(init, init, init, message("init ", me / 2, " of 2")));
        }
      },
      &world);
  EXPECT_EQ(world.num_ids, 4);
}

TEST(Nccl, CallsStandInGroupsOnTheirStreamsAndCommunicators) {
  run_ranks(2, [](Fixture& rank) {
    const Group group = group_of(rank.transport);
    const int peer = 1 - group.position;
    rank.communicators->connect(group, Lane::tp);
    rank.communicators->connect(group, Lane::pp_fwd_send);
    Data x{DType::bf16, 6}, y{DType::bf16, 6};
    std::vector<std::string>& log = rank.library.log;
    int streams[3];
    log.clear();
    rank.run(AllReduce{x.tensor(), group, Reduction::avg}, Lane::tp, &streams[0]);
    rank.run(AllToAll{x.tensor(), y.tensor(), group}, Lane::tp, &streams[0]);
    if (group.position == 0) {
      rank.run(SendRecv{x.tensor(), {}, group, 1, -1}, Lane::pp_fwd_send, &streams[1]);
      rank.run(SendRecv{{}, y.tensor(), group, -1, 1}, Lane::pp_fwd_recv, &streams[2]);
    } else {
      rank.run(SendRecv{{}, y.tensor(), group, -1, 0}, Lane::pp_fwd_recv, &streams[2]);
      rank.run(SendRecv{x.tensor(), {}, group, 0, -1}, Lane::pp_fwd_send, &streams[1]);
    }
    rank.run(Broadcast{x.tensor(), y.tensor(), group, 1}, Lane::tp, &streams[0]);
    const std::string send = message("ncclSend 6 bf16 ", peer);
    const std::string receive = message("ncclRecv 6 bf16 ", peer);
    const bool first = group.position == 0;
    EXPECT_THAT(log, ElementsAre("ncclAllReduce 6 bf16", "start", "ncclSend 3 bf16 0",
                                 "ncclRecv 3 bf16 0", "ncclSend 3 bf16 1", "ncclRecv 3 bf16 1",
                                 "end", "start", first ? send : receive, "end", "start",
                                 first ? receive : send, "end", "ncclBroadcast 6 bf16 1"));
    for (const FakeNcclRank::Call& call : rank.library.calls) {
      const bool is_tp = call.stream == &streams[0];
      const bool is_whole_send = call.call.function == NcclFunction::send && call.call.count == 6;
      EXPECT_EQ(call.clique, is_tp ? 1 : 2);
      EXPECT_EQ(call.stream == &streams[1], is_whole_send);
    }
  });
}

TEST(Nccl, ABarrierMovesAByteOfTheCommunicator) {
  run_ranks(2, [](Fixture& rank) {
    const Group group = group_of(rank.transport);
    rank.communicators->connect(group, Lane::tp);
    rank.run(Barrier{group}, Lane::tp);
    ASSERT_EQ(rank.library.calls.size(), 1U);
    const NcclCall& call = rank.library.calls.front().call;
    EXPECT_NE(call.to, nullptr);
    EXPECT_EQ(call.from, call.to);
    EXPECT_EQ(call.count * size_of(call.dtype), 1);
    EXPECT_EQ(rank.library.num_barrier_bytes, 1);
    rank.communicators.reset();
    EXPECT_EQ(rank.library.num_barrier_bytes, 0);
  });
}

constexpr std::int64_t numel = 12;  ///< of whole tensors
/// A member's tensors: operand and results.
struct Memory {
  Data x{DType::f32, numel}, sum{DType::f32, numel}, ring{DType::f32, numel};
  Data blocks{DType::f32, numel}, all{DType::f32, numel}, largest{DType::f32, numel};
  Data cast{DType::f32, numel};
};

void run_every_function(Fixture& rank, Memory& m) {
  const Group group = group_of(rank.transport);
  const int me = group.position, size = group.size;
  m.x.fill([&](std::int64_t i) { return value_at(me, i); });
  for (const Lane lane : {Lane::tp, Lane::cp}) rank.communicators->connect(group, lane);
  rank.run(AllReduce{m.x.tensor(), group, Reduction::sum, m.sum.tensor()}, Lane::tp);
  rank.run(SendRecv{m.x.tensor(), m.ring.tensor(), group, (me + 1) % size, (me + size - 1) % size},
           Lane::cp);
  rank.run(Barrier{group}, Lane::cp);
  rank.run(AllToAll{m.x.tensor(), m.blocks.tensor(), group}, Lane::tp);
  const Tensor part = m.all.block(me, numel / size);
  rank.run(ReduceScatter{m.x.tensor(), part, group, Reduction::sum}, Lane::tp);
  rank.run(AllGather{part, m.all.tensor(), group}, Lane::tp);
  rank.run(Reduce{m.x.tensor(), m.largest.tensor(), group, 1, Reduction::max}, Lane::cp);
  rank.run(Broadcast{m.x.tensor(), m.cast.tensor(), group, 1}, Lane::cp);
}

/// From the ops to the values, on two lanes.
TEST(Nccl, CallsOfAllMembersGiveTheRightValues) {
  for (const int size : {2, 3}) {
    std::vector<Memory> memory(static_cast<std::size_t>(size));
    FakeNccl world;
    run_ranks(
        size,
        [&](Fixture& rank) {
          run_every_function(rank, memory[static_cast<std::size_t>(rank.transport.rank())]);
          rank.transport.barrier();
          if (rank.transport.rank() == 0) world.evaluate();
          rank.transport.barrier();
        },
        &world);
    for (int me = 0; me < size; ++me)
      for (std::int64_t i = 0; i < numel; ++i) {
        const Memory& mine = memory[static_cast<std::size_t>(me)];
        double sum = 0, largest = value_at(0, i);
        for (int member = 0; member < size; ++member) {
          sum += value_at(member, i);
          largest = std::max(largest, value_at(member, i));
        }
        EXPECT_EQ(mine.sum.get(i), sum);
        EXPECT_EQ(mine.all.get(i), sum);
        EXPECT_EQ(mine.ring.get(i), value_at((me + size - 1) % size, i));
        EXPECT_EQ(mine.cast.get(i), value_at(1, i));
        if (me == 1) {
          EXPECT_EQ(mine.largest.get(i), largest);
        }
        const std::int64_t count = numel / size;
        EXPECT_EQ(mine.blocks.get(i),
                  value_at(static_cast<int>(i / count), me * count + i % count));
      }
  }
}

TEST(Nccl, WhatIsInProgressIsWaitedFor) {
  run_ranks(2, [](Fixture& rank) {
    const Group group = group_of(rank.transport);
    rank.communicators->connect(group, Lane::tp);
    Data x{DType::f32, 4};
    rank.library.call_result = ncclInProgress;
    rank.library.num_polls_in_progress = 5;
    rank.run(AllReduce{x.tensor(), group, Reduction::sum}, Lane::tp);
    EXPECT_EQ(rank.library.num_polls_in_progress, 0);
    rank.library.group_result = ncclInProgress;
    rank.library.num_polls_in_progress = 5;
    rank.run(AllToAll{x.tensor(), x.tensor(), group}, Lane::tp);
    EXPECT_EQ(rank.library.num_polls_in_progress, 0);
  });
}

TEST(Nccl, AMemberThatDoesNotComeIsATimeOutWithGroupAndLane) {
  run_ranks(2, [](Fixture& rank) {
    const Group group = group_of(rank.transport);
    rank.communicators->connect(group, Lane::tp);
    Data x{DType::f32, 4};
    if (group.position == 0) {
      rank.transport.set_wait_policy({.yield = true, .timeout_s = 0.3});
      rank.library.group_result = ncclInProgress;
      rank.library.num_polls_in_progress = std::numeric_limits<int>::max();
      rank.library.log.clear();
      const auto send = [&] { rank.run(SendRecv{x.tensor(), {}, group, 1, -1}, Lane::tp); };
      const std::string text = error_of(send);
      EXPECT_THAT(text, HasSubstr("PeerError: no answer for 0.3 s"));
      EXPECT_THAT(text, HasSubstr("ncclSend of tp[0,1], lane tp"));
      EXPECT_THAT(rank.library.log,
                  ElementsAre("start", "ncclSend 4 f32 1", "end", "start", "abort", "end"));
      EXPECT_THAT(error_of(send), HasSubstr("given up"));
    } else {
      while (rank.transport.find_dead_peer().empty()) std::this_thread::yield();
      EXPECT_THAT(error_of([&] { rank.communicators->connect(group, Lane::dp); }),
                  HasSubstr("PeerError: rank 0"));
      rank.communicators->abort();
    }
  });
}

/// Rank 1 ends between the identifier and its call of ncclCommInitRankConfig.
TEST(Nccl, AMemberThatIsGoneIsSeenWhileACommunicatorIsMade) {
  FakeNccl world;
  run_threads(2, [&](Transport& transport) {
    transport.set_wait_policy({.yield = true, .timeout_s = 30});
    const Group group = group_of(transport);
    if (group.position == 1) {
      transport.connect(group, Lane::tp);
      ncclUniqueId id{};
      const Tensor tensor{1, DType::i8, {128}, 0, 128, reinterpret_cast<std::byte*>(&id)};
      transport.start(Broadcast{tensor, tensor, group, 0}, Lane::tp);
      while (!transport.test(Lane::tp)) std::this_thread::yield();
      return;
    }
    Fixture rank{world, transport};
    const std::string text = error_of([&] { rank.communicators->connect(group, Lane::tp); });
    EXPECT_THAT(text, HasSubstr("PeerError: rank 1"));
    EXPECT_THAT(text, HasSubstr("ncclCommInitRankConfig of tp[0,1], lane tp"));
    EXPECT_THAT(rank.library.log, ElementsAre("init 0 of 2", "start", "abort", "end"));
  });
}

TEST(Nccl, ErrorsNameGroupAndLaneAndEndTheGroup) {
  run_ranks(2, [](Fixture& rank) {
    const Group group = group_of(rank.transport);
    rank.communicators->connect(group, Lane::cp);
    EXPECT_EQ(rank.communicators->find_error(), "");
    Data x{DType::f32, 4};
    rank.library.log.clear();
    rank.library.call_result = ncclInvalidArgument;
    EXPECT_THAT(error_of([&] {
                  rank.run(AllToAll{x.tensor(), x.tensor(), group}, Lane::cp);
                }),
                testing::StartsWith("Error: ncclSend of tp[0,1], lane cp: some error"));
    EXPECT_THAT(rank.library.log,
                ElementsAre("start", "ncclSend 2 f32 0", "end", "start", "abort", "end"));
  });
}

TEST(Nccl, WhatACommunicatorReportsLaterIsFound) {
  run_ranks(2, [](Fixture& rank) {
    const Group group = group_of(rank.transport);
    rank.communicators->connect(group, Lane::tp);
    rank.library.state = ncclInProgress;
    EXPECT_EQ(rank.communicators->find_error(), "");
    rank.library.state = ncclRemoteError;
    EXPECT_EQ(rank.communicators->find_error(), "tp[0,1], lane tp: remote error, last words");
    Data x{DType::f32, 4};
    rank.library.call_result = ncclInProgress;
    EXPECT_THAT(error_of([&] {
                  rank.run(AllReduce{x.tensor(), group, Reduction::sum}, Lane::tp);
                }),
                testing::StartsWith("PeerError: ncclAllReduce of tp[0,1], lane tp: remote error"));
    EXPECT_EQ(rank.communicators->find_error(), "");
  });
}

TEST(Nccl, CommunicatorsAreClosedTogetherAndAbortedAfterAnError) {
  run_ranks(2, [](Fixture& rank) {
    const Group group = group_of(rank.transport);
    for (const Lane lane : {Lane::tp, Lane::dp}) rank.communicators->connect(group, lane);
    rank.library.log.clear();
    rank.communicators.reset();
    EXPECT_THAT(rank.library.log, ElementsAre("finalize", "finalize", "destroy", "destroy"));
  });
  run_ranks(2, [](Fixture& rank) {
    const Group group = group_of(rank.transport);
    rank.communicators->connect(group, Lane::tp);
    rank.library.log.clear();
    EXPECT_THAT(error_of([&] {
                  const auto communicators = std::move(rank.communicators);
                  throw Error{"something else"};
                }),
                HasSubstr("something else"));
    EXPECT_THAT(rank.library.log, ElementsAre("start", "abort", "end"));
  });
}

TEST(Nccl, WhatIsNotConnectedIsRefused) {
  run_ranks(2, [](Fixture& rank) {
    const Group group = group_of(rank.transport);
    rank.communicators->connect(group, Lane::tp);
    Data x{DType::f32, 4};
    EXPECT_THAT(error_of([&] {
                  rank.run(AllReduce{x.tensor(), group, Reduction::sum}, Lane::dp);
                }),
                HasSubstr("not connected on lane dp"));
  });
}

TEST(Nccl, ALibraryThatIsMissingOrAnotherOneIsNamed) {
  EXPECT_THAT(load_nccl("libshardmark_has_no_such.so").missing,
              HasSubstr("NCCL cannot be loaded: libshardmark_has_no_such.so"));
  EXPECT_THAT(load_nccl("libm.so.6").missing, HasSubstr("libm.so.6 has no ncclGetVersion"));
}

TEST(Nccl, TheLibraryHereHasAllFunctions) {
  const NcclFacts facts = nccl_facts();
  if (!facts.missing.empty()) GTEST_SKIP() << facts.missing;
  EXPECT_GE(facts.version, 21400);
}

/// Through the real functions, as far as they come without a GPU.
TEST(Nccl, WithoutAGpuConnectingIsAnError) {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) GTEST_SKIP() << "there is a GPU";
  if (const NcclFacts facts = nccl_facts(); !facts.missing.empty()) GTEST_SKIP() << facts.missing;
  const auto connect = [] {
    run_threads(2, [](Transport& transport) {
      transport.set_wait_policy({.yield = true, .timeout_s = 20});
      open_nccl(transport)->connect(group_of(transport), Lane::tp);
    });
  };
  EXPECT_THAT(connect, testing::ThrowsMessage<Error>(HasSubstr("of tp[0,1], lane tp: ")));
}

TEST(Nccl, VersionsAndSettingsAreText) {
  EXPECT_EQ(nccl_version_text(22809), "2.28.9");
  EXPECT_EQ(nccl_version_text(23001), "2.30.1");
  EXPECT_EQ(nccl_version_text(2708), "2.7.8");
  ASSERT_EQ(setenv("NCCL_SHARDMARK_B", "x=y", 1), 0);
  ASSERT_EQ(setenv("NCCL_SHARDMARK_A", "", 1), 0);
  EXPECT_THAT(nccl_settings(),
              testing::IsSupersetOf({std::pair<std::string, std::string>{"NCCL_SHARDMARK_A", ""},
                                     {"NCCL_SHARDMARK_B", "x=y"}}));
}

}  // namespace
}  // namespace shardmark::cuda
