#include "core/cpu/transport_threads.hpp"

#include "core/error.hpp"
#include "core/launch.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/transport_conformance.hpp"

#include <gmock/gmock.h>

#include <array>
#include <chrono>
#include <thread>

namespace shardmark {
namespace {

using conformance::Check;
using test::error_of;
using testing::HasSubstr;

class Conformance : public testing::TestWithParam<std::tuple<int, Check>> {};

TEST_P(Conformance, Holds) {
  const auto& [ranks, check] = GetParam();
  run_threads(ranks, check.run);
}

INSTANTIATE_TEST_SUITE_P(Threads, Conformance,
                         testing::Combine(testing::Values(1, 2, 3, 4, 8),
                                          testing::ValuesIn(conformance::checks)),
                         [](const auto& param) {
                           return std::string{std::get<1>(param.param).name} + "_" +
                                  std::to_string(std::get<0>(param.param));
                         });

TEST(ThreadTransport, MismatchedCallsNameBothRanks) {
  const std::string text = error_of(3, [](Transport& transport) {
    const Group group = conformance::world_of(transport);
    transport.connect(group, Lane::tp);
    conformance::Data x{DType::f32, transport.rank() == 2 ? 8 : 4};
    conformance::communicate(transport, AllReduce{x.tensor(), group, Reduction::sum}, Lane::tp);
  });
  EXPECT_THAT(text, HasSubstr("rank 2 called all_reduce of 8 x f32 where rank 0 called all_reduce "
                              "of 4 x f32 on tp[0,1,2]"));
}

TEST(ThreadTransport, DifferentOpsAreAMismatch) {
  const std::string text = error_of(2, [](Transport& transport) {
    const Group group = conformance::world_of(transport);
    transport.connect(group, Lane::tp);
    conformance::Data x{DType::f32, 4};
    conformance::Data y{DType::f32, 8};
    if (transport.rank() == 0)
      conformance::communicate(transport, AllReduce{x.tensor(), group, Reduction::max}, Lane::tp);
    else
      conformance::communicate(transport, AllGather{x.tensor(), y.tensor(), group}, Lane::tp);
  });
  EXPECT_THAT(text, HasSubstr("rank 1 called all_gather of 4 x f32 where rank 0 called all_reduce "
                              "(max) of 4 x f32"));
}

/// Rank 0 submits `op(0, ...)`, rank 1 `op(1, ...)`.
std::string mismatch_of(Op (*op)(int rank, const Group& group, const Tensor& x, const Tensor& y)) {
  return error_of(2, [&](Transport& transport) {
    const Group group = conformance::connected_world(transport);
    conformance::Data x{DType::f32, 4};
    conformance::Data y{DType::f32, 8};
    conformance::communicate(transport, op(transport.rank(), group, x.tensor(), y.tensor()),
                             Lane::tp);
  });
}

TEST(ThreadTransport, RootsReductionsAndCountsAreCompared) {
  EXPECT_THAT(mismatch_of([](int rank, const Group& group, const Tensor& x, const Tensor&) {
                return Op{Broadcast{x, x, group, rank}};
              }),
              HasSubstr("rank 1 called broadcast of 4 x f32 with root 1 where rank 0 called "
                        "broadcast of 4 x f32 with root 0"));
  EXPECT_THAT(mismatch_of([](int rank, const Group& group, const Tensor& x, const Tensor& y) {
                const auto reduction = rank == 0 ? Reduction::avg : Reduction::min;
                return Op{ReduceScatter{y, x, group, reduction}};
              }),
              HasSubstr("rank 1 called reduce_scatter (min) of 4 x f32 where rank 0 called "
                        "reduce_scatter (avg) of 4 x f32"));
  EXPECT_THAT(mismatch_of([](int rank, const Group& group, const Tensor& x, const Tensor& y) {
                static constexpr std::int64_t counts[] = {2, 2, 2, 2, 3, 1, 1, 3};
                return Op{AllToAllV{x, y, group, std::span{counts}.subspan(rank == 0 ? 0 : 4, 4)}};
              }),
              HasSubstr("on tp[0,1]; their counts differ"));
}

TEST(ThreadTransport, MessagesThatDoNotMatchNameBothRanks) {
  EXPECT_THAT(
      mismatch_of([](int rank, const Group& group, const Tensor& x, const Tensor& y) {
        return rank == 0 ? Op{SendRecv{x, {}, group, 1, -1}} : Op{SendRecv{{}, y, group, -1, 0}};
      }),
      HasSubstr("rank 1 receives 8 x f32 where rank 0 sends 4 x f32 on tp[0,1]"));
  EXPECT_THAT(mismatch_of([](int rank, const Group& group, const Tensor& x, const Tensor&) {
                return rank == 0 ? Op{SendRecv{x, {}, group, 1, -1}} : Op{AllReduce{x, group}};
              }),
              HasSubstr("rank 1 called all_reduce of 4 x f32 where rank 0 called send_recv with "
                        "it on tp[0,1]"));
}

TEST(ThreadTransport, TwoLanesThatSendToOneMemberAtOnceAreAnError) {
  const std::string text = error_of(2, [](Transport& transport) {
    const Group group = conformance::connected_world(transport, Lane::pp_fwd_send);
    conformance::Data x{DType::f32, 4};
    if (transport.rank() == 1) return transport.barrier();
    transport.start(SendRecv{x.tensor(), {}, group, 1, -1}, Lane::pp_fwd_send);
    transport.start(SendRecv{x.tensor(), {}, group, 1, -1}, Lane::pp_fwd_recv);
  });
  EXPECT_THAT(text, HasSubstr("two lanes send to member 1 of tp[0,1] at once"));
}

TEST(ThreadTransport, AMessageToAFailedRankIsTakenBack) {
  std::string seen;
  EXPECT_EQ(
      error_of(
          2,
          [&](Transport& transport) {
            const Group group = conformance::connected_world(transport);
            if (transport.rank() == 1) throw Error{"out of cheese"};
            conformance::Data x{DType::f32, 4};
            try {
              conformance::communicate(transport, SendRecv{x.tensor(), {}, group, 1, -1}, Lane::tp);
            } catch (const PeerError& error) {
              seen = error.what();
              throw;
            }
          }),
      "out of cheese");
  EXPECT_THAT(seen, HasSubstr("rank 1 failed: out of cheese"));
}

/// One all-gather that rank 0 gives up after `looks`, and writes to its memory. Whether rank 1, 2
/// came to the end; what they have then is what rank 0 had before.
std::array<bool, 2> gather_and_withdraw(std::int64_t numel, int looks) {
  std::array<bool, 2> ended{};
  run_threads(3, [&](Transport& transport) {
    const Group group = conformance::connected_world(transport);
    conformance::Data x{DType::f32, numel};
    conformance::Data y{DType::f32, 3 * numel};
    x.fill([](std::int64_t) { return 7.0; });
    transport.barrier();
    transport.start(AllGather{x.tensor(), y.tensor(), group}, Lane::tp);
    const int most_looks = transport.rank() == 0 ? looks : 20'000;
    bool done = false;
    for (int look = 0; look < most_looks && !done; ++look) {
      done = transport.test(Lane::tp);
      std::this_thread::yield();
    }
    transport.withdraw();
    if (transport.rank() == 0)
      x.fill([](std::int64_t) { return -1.0; });
    else
      ended[static_cast<std::size_t>(transport.rank() - 1)] = done;
    if (done) y.expect(transport, "all_gather", [](std::int64_t) { return 7.0; });
  });
  return ended;
}

TEST(ThreadTransport, NobodyTouchesTheMemoryOfAMemberThatHasWithdrawn) {
  int num_ended = 0;
  constexpr int rounds = 300;
  for (int round = 0; round < rounds; ++round) {
    // Copied in no time, and for long enough to be met in the middle of it.
    const std::int64_t numel = round % 2 == 0 ? 4 : 4096;
    const auto [one, two] = gather_and_withdraw(numel, 1 << round / 2 % 10);
    num_ended += int{one} + int{two};
  }
  EXPECT_GT(num_ended, 0);
  EXPECT_LT(num_ended, 2 * rounds) << "rank 0 never withdrew in time";
}

TEST(ThreadTransport, UnconnectedGroupIsAnError) {
  EXPECT_THAT(error_of(1,
                       [](Transport& transport) {
                         conformance::Data x{DType::f32, 4};
                         const Group group = conformance::world_of(transport);
                         transport.start(AllReduce{x.tensor(), group, Reduction::sum}, Lane::cp);
                       }),
              HasSubstr("tp[0] is not connected on lane cp"));
}

TEST(RunThreads, RethrowsTheCauseNotItsConsequences) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(error_of<InputError>(4,
                                 [](Transport& transport) {
                                   if (transport.rank() == 2) throw InputError{"no such model"};
                                   transport.barrier();
                                 }),
            "no such model");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{3});
}

TEST(RunThreads, SurvivorsNameTheFailedRank) {
  std::string seen;
  EXPECT_EQ(error_of(2,
                     [&](Transport& transport) {
                       if (transport.rank() == 1) throw Error{"out of cheese"};
                       try {
                         transport.barrier();
                       } catch (const PeerError& error) {
                         seen = error.what();
                         throw;
                       }
                     }),
            "out of cheese");
  EXPECT_THAT(seen, HasSubstr("rank 1 failed: out of cheese while waiting for"));
}

TEST(RunThreads, ARankThatEndsEarlyFailsTheOthers) {
  EXPECT_THAT(error_of<PeerError>(2,
                                  [](Transport& transport) {
                                    if (transport.rank() == 0) transport.barrier();
                                  }),
              HasSubstr("rank 1 has ended"));
}

TEST(RunThreads, TimeoutNamesTheSilentRank) {
  const std::string text = error_of<TimeoutError>(3, [](Transport& transport) {
    transport.set_wait_policy({.yield = true, .timeout_s = 0.3});
    if (transport.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds{1700});
    transport.barrier();
  });
  EXPECT_THAT(text,
              HasSubstr("no answer for 0.3 s (--timeout); no sign of life from rank 1 while"));
}

TEST(RunThreadsDeathTest, ARankThatHangsDoesNotKeepTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_threads(2,
                          [](Transport& transport) {
                            if (transport.rank() == 0) throw InputError{"tp 3 is too many"};
                            for (;;) std::this_thread::sleep_for(std::chrono::seconds{1});
                          }),
              testing::ExitedWithCode(2), "shardmark: rank 0 .*: tp 3 is too many");
}

TEST(RunThreads, RefusesNoRanks) {
  EXPECT_THROW(run_threads(0, [](Transport&) {}), InputError);
}

}  // namespace
}  // namespace shardmark
