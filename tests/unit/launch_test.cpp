#include "core/launch.hpp"

#include "core/bf16.hpp"
#include "core/error.hpp"
#include "core/host.hpp"
#include "core/keeper.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <utility>

namespace shardmark {
namespace {

/// Sets the variables of a launcher for one test, and no other launcher's.
class LauncherVariables {
 public:
  explicit LauncherVariables(std::initializer_list<std::pair<const char*, const char*>> variables) {
    clear();
    for (const auto& [name, value] : variables) ::setenv(name, value, 1);
  }
  LauncherVariables(const LauncherVariables&) = delete;
  LauncherVariables& operator=(const LauncherVariables&) = delete;
  ~LauncherVariables() { clear(); }

 private:
  static void clear() {
    for (const char* name :
         {"PMI_SIZE", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_ID",
          "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"})
      ::unsetenv(name);
  }
};

TEST(Launcher, IsNamedWithItsEvidence) {
  const auto expect = [](std::initializer_list<std::pair<const char*, const char*>> variables,
                         const char* launcher) {
    const LauncherVariables set{variables};
    EXPECT_EQ(detect_launcher(), launcher);
  };
  expect({}, "");
  expect({{"PMI_SIZE", "4"}, {"PMI_RANK", "0"}}, "mpirun (PMI_SIZE=4)");
  expect({{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}}, "");
  expect({{"OMPI_COMM_WORLD_SIZE", "2"}}, "mpirun of Open MPI (OMPI_COMM_WORLD_SIZE=2)");
  expect({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}},
         "srun (SLURM_NTASKS=8)");
  expect({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}, "");
  expect({{"PMIX_RANK", "3"}}, "a PMIx launcher (PMIX_RANK=3)");
}

TEST(Host, KnowsItself) {
  EXPECT_FALSE(host_name().empty());
  EXPECT_GE(cores_available(), 1);
  EXPECT_GT(memory_total_bytes(), memory_peak_resident_bytes());
  EXPECT_GE(memory_peak_resident_bytes(), memory_resident_bytes());
  EXPECT_GT(memory_resident_bytes(), 100'000);
  EXPECT_TRUE(process_state(::getpid()).alive());
  EXPECT_GT(process_state(::getpid()).start_ticks, 0);
  EXPECT_FALSE(process_state(0x7FFFFFFF).alive());
}

TEST(Errors, HaveCodeAndText) {
  const auto input = std::make_exception_ptr(InputError{"tp 3 is odd"});
  EXPECT_EQ(exit_code_of(input), 2);
  EXPECT_EQ(text_of(input), "tp 3 is odd");
  EXPECT_EQ(exit_code_of(std::make_exception_ptr(PeerError{"gone"})), 1);
  EXPECT_EQ(text_of(std::make_exception_ptr(Error{"broken", "a.cpp:7"})), "broken (a.cpp:7)");
  EXPECT_EQ(exit_code_of(std::make_exception_ptr(7)), 1);
  EXPECT_EQ(run_main([] { return 5; }), 5);
  EXPECT_EQ(run_main([]() -> int { throw InputError{"said on purpose"}; }), 2);
}

TEST(Endpoints, ShareALineWithinAProcess) {
  EXPECT_EQ(describe({{0, "a", 7}, {1, "a", 7}, {2, "a", 8}, {3, "b", 8}}),
            "ranks 0-1  host a  pid 7\nrank 2  host a  pid 8\nrank 3  host b  pid 8\n");
}

TEST(Oversubscription, CountsThreadsAgainstCores) {
  run_threads(2, [](Transport& transport) {
    EXPECT_TRUE(is_oversubscribed(transport, cores_available()));
    EXPECT_EQ(is_oversubscribed(transport, 1), cores_available() < 2);
  });
}

TEST(InterruptFlag, NotesTheSignalAndRestoresTheHandler) {
  {
    const InterruptFlag flag;
    EXPECT_FALSE(flag.is_set());
    EXPECT_EQ(flag.exit_code(), 0);
    ::raise(SIGINT);
    EXPECT_TRUE(flag.is_set());
    EXPECT_EQ(flag.exit_code(), 130);
  }
  const InterruptFlag again;
  EXPECT_FALSE(again.is_set());
}

/// Sends this process a signal as the keeper does. The thread sanitizer calls handlers only at the
/// end of calls it knows, of which sigqueue is none: hence the sleep.
void queue(int number) {
  ::sigqueue(::getpid(), SIGINT, {.sival_int = number});
  ::usleep(1);
}

/// A launcher signals rank and keeper: what the keeper passes on later is the same signal.
TEST(InterruptFlag, WhatAKeeperPassesOnCountsOnce) {
  const InterruptFlag flag;
  queue(1);
  EXPECT_TRUE(flag.is_set());
  queue(1);
  EXPECT_EQ(flag.exit_code(), 130);
}

TEST(InterruptFlagDeathTest, TheSecondThatAKeeperPassesOnEndsAtOnce) {
  EXPECT_EXIT(
      {
        const InterruptFlag flag;
        ::raise(SIGINT);
        queue(1);
        if (flag.is_set()) queue(2);
      },
      testing::ExitedWithCode(130), "");
}

/// Sends the keeper a signal and gives it time to pass that on.
void signal_keeper(int signal) {
  ::kill(::getppid(), signal);
  for (int i = 0; i < 25; ++i) ::usleep(10'000);
}

TEST(KeeperDeathTest, TheFirstSignalReachesTheRankAndTheSecondEndsIt) {
  const auto exit_code_after = [](int num_signals) {
    Keeper keeper;
    const InterruptFlag flag;
    for (int i = 0; i < num_signals; ++i) signal_keeper(SIGINT);
    keeper.completed();
    ::_exit(flag.is_set() ? 3 : 4);
  };
  EXPECT_EXIT(exit_code_after(0), testing::ExitedWithCode(4), "");
  EXPECT_EXIT(exit_code_after(1), testing::ExitedWithCode(3), "");
  EXPECT_EXIT(exit_code_after(2), testing::ExitedWithCode(130), "");
}

TEST(InterruptFlagDeathTest, TheSecondSignalEndsAtOnce) {
  EXPECT_EXIT(
      {
        const InterruptFlag flag;
        ::raise(SIGINT);
        ::raise(SIGINT);
      },
      testing::ExitedWithCode(130), "");
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(to_float(to_bf16(1.0F)), 1.0F);
  EXPECT_EQ(to_bf16(1.0F + 1.0F / 256), to_bf16(1.0F));                // a tie, to even
  EXPECT_EQ(to_float(to_bf16(1.0F + 3.0F / 256)), 1.0F + 4.0F / 256);  // a tie, to even
  EXPECT_EQ(to_float(to_bf16(1.0F + 1.1F / 256)), 1.0F + 2.0F / 256);
  EXPECT_TRUE(std::isinf(to_float(to_bf16(std::numeric_limits<float>::max()))));
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::bit_cast<float>(0x7F800001U)))));
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::bit_cast<float>(0xFFFFFFFFU)))));
  for (std::uint32_t bits = 0; bits < 0x7F80U; ++bits)
    ASSERT_EQ(to_bf16(to_float(static_cast<std::uint16_t>(bits))), bits);
}

}  // namespace
}  // namespace shardmark
