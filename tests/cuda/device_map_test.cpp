#include "core/cuda/device_map.hpp"

#include "core/cuda/mpi_support.hpp"
#include "core/cuda/probe_shapes.hpp"
#include "core/error.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

namespace shardmark::cuda {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Variables = std::vector<std::pair<std::string, std::string>>;

/// A process on a machine that sees GPUs g0, g1, ... of it.
RankPlace place(const std::string& host, std::int64_t pid, int num_devices,
                const Variables& launcher = {}) {
  RankPlace result;
  result.host = result.machine = host;
  result.pid = pid;
  result.launcher = launcher;
  result.visible_devices = "(unset)";
  for (int i = 0; i < num_devices; ++i) result.devices.push_back(message('g', i));
  result.nccl_version = 22809;
  return result;
}

/// One process for each of a launcher's numbers.
std::vector<RankPlace> places(const std::vector<std::string>& numbers, int num_devices,
                              const char* variable = "MPI_LOCALRANKID") {
  std::vector<RankPlace> result;
  for (const std::string& number : numbers)
    result.push_back(place("a", 100 + static_cast<std::int64_t>(result.size()), num_devices,
                           {{variable, number}}));
  return result;
}

std::vector<int> devices_of(const std::vector<DeviceChoice>& choices) {
  std::vector<int> devices;
  for (const DeviceChoice& choice : choices) devices.push_back(choice.device);
  return devices;
}
std::string notices_of(const std::vector<DeviceChoice>& choices) {
  std::string text;
  for (const DeviceChoice& choice : choices)
    for (const std::string& notice : choice.notices) text += notice + '\n';
  return text;
}
std::string refusal_of(const std::vector<RankPlace>& ranks, Path path, int asked = -1) {
  try {
    (void)choose_devices(ranks, path, asked);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(DeviceMap, EveryLaunchersNumberCounts) {
  for (const char* variable : launcher_variables()) {
    const auto choices = choose_devices(places({"0", "1", "2"}, 4, variable), Path::nccl);
    EXPECT_THAT(devices_of(choices), ElementsAre(0, 1, 2));
    EXPECT_EQ(notices_of(choices), "");
  }
}

TEST(DeviceMap, WithoutALauncherRanksCountOnTheirHosts) {
  const std::vector<RankPlace> ranks{place("a", 1, 2), place("b", 1, 2), place("a", 2, 2),
                                     place("b", 2, 2)};
  const auto choices = choose_devices(ranks, Path::nccl);
  EXPECT_THAT(devices_of(choices), ElementsAre(0, 0, 1, 1));
  EXPECT_EQ(notices_of(choices), "");
}

TEST(DeviceMap, ALauncherThatCountsOtherwiseIsFollowedWithANotice) {
  const auto choices = choose_devices(places({"1", "0"}, 2), Path::nccl);
  EXPECT_THAT(devices_of(choices), ElementsAre(1, 0));
  EXPECT_THAT(choices[0].notices, ElementsAre(AllOf(HasSubstr("rank 0 has MPI_LOCALRANKID=1"),
                                                    HasSubstr("number 0 of the ranks on host a"))));
}

/// mpirun inside a job of Slurm: every process has the number of the job's only task.
TEST(DeviceMap, NumbersThatDoNotTellRanksApartAreIgnored) {
  auto ranks = places({"0", "0", "0"}, 3, "SLURM_LOCALID");
  const auto choices = choose_devices(ranks, Path::nccl);
  EXPECT_THAT(devices_of(choices), ElementsAre(0, 1, 2));
  EXPECT_THAT(notices_of(choices), HasSubstr("SLURM_LOCALID does not tell the ranks on host a"));

  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    ranks[rank].launcher.insert(ranks[rank].launcher.begin(),
                                {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank)});
  EXPECT_EQ(notices_of(choose_devices(ranks, Path::nccl)), "");
}

TEST(DeviceMap, WhatIsNoNumberIsIgnored) {
  for (const char* text : {"", "x", "-1", "1x"})
    EXPECT_THAT(devices_of(choose_devices(places({"1", text}, 2), Path::nccl)), ElementsAre(0, 1))
        << text;
}

TEST(DeviceMap, EachProcessMaySeeOneGpuOfItsOwn) {
  auto ranks = places({"0", "1", "2"}, 0);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    ranks[rank].devices = {message('g', rank)};
    ranks[rank].visible_devices = std::to_string(rank);
  }
  const auto choices = choose_devices(ranks, Path::nccl);
  EXPECT_THAT(devices_of(choices), ElementsAre(0, 0, 0));
  EXPECT_EQ(notices_of(choices), "");
}

TEST(DeviceMap, EachProcessMaySeeGpusInItsOwnOrder) {
  auto ranks = places({"0", "1"}, 0);
  ranks[0].devices = {"g0", "g1"};
  ranks[1].devices = {"g2", "g3"};
  EXPECT_THAT(devices_of(choose_devices(ranks, Path::nccl)), ElementsAre(0, 1));
  ranks[1].devices = {"g1", "g0"};
  EXPECT_THAT(refusal_of(ranks, Path::nccl), HasSubstr("ranks 0, 1 would share GPU g0"));
}

TEST(DeviceMap, MoreRanksThanGpusAreAnErrorThatNamesTheWayOut) {
  EXPECT_THAT(refusal_of(places({"0", "1", "2"}, 2), Path::nccl),
              AllOf(HasSubstr("ranks 0, 2 would share GPU g0 of host a"), HasSubstr("NCCL 2.28.9"),
                    HasSubstr("--transport staged")));
  for (const Path path : {Path::staged, Path::mpi_cuda}) {
    const auto choices = choose_devices(places({"0", "1", "2"}, 2), path);
    EXPECT_THAT(devices_of(choices), ElementsAre(0, 1, 0));
    EXPECT_EQ(notices_of(choices), "ranks 0, 2 share GPU g0 of host a\n");
  }
}

TEST(DeviceMap, NewNcclsMayShareIfTheyAreTold) {
  auto ranks = places({"0", "1"}, 1);
  for (RankPlace& rank : ranks) rank.nccl_version = 23001;
  EXPECT_THAT(refusal_of(ranks, Path::nccl), HasSubstr("NCCL_MULTI_RANK_GPU_ENABLE=1"));
  ranks[0].may_share = true;
  EXPECT_THAT(refusal_of(ranks, Path::nccl), HasSubstr("NCCL_MULTI_RANK_GPU_ENABLE=1"));
  ranks[1].may_share = true;
  EXPECT_THAT(notices_of(choose_devices(ranks, Path::nccl)), HasSubstr("an experiment of NCCL"));
  ranks[1].nccl_version = 22907;
  EXPECT_THAT(refusal_of(ranks, Path::nccl), HasSubstr("NCCL 2.29.7 takes one rank"));
}

TEST(DeviceMap, ADeviceThatIsAskedForIsTaken) {
  EXPECT_THAT(devices_of(choose_devices(places({"0"}, 4), Path::nccl, 3)), ElementsAre(3));
  EXPECT_THAT(refusal_of(places({"0"}, 4), Path::nccl, 4),
              AllOf(HasSubstr("--device 4"), HasSubstr("sees 4 GPUs")));
  EXPECT_THAT(refusal_of(places({"0", "1"}, 4), Path::nccl, 3),
              AllOf(HasSubstr("ranks 0, 1 would share GPU g3"), HasSubstr("--device 3")));
  const auto choices = choose_devices(places({"1", "0"}, 4), Path::staged, 3);
  EXPECT_THAT(devices_of(choices), ElementsAre(3, 3));
  EXPECT_EQ(notices_of(choices), "ranks 0, 1 share GPU g3 of host a\n");
}

TEST(DeviceMap, RanksAsThreadsOfAProcessCountInOrder) {
  std::vector<RankPlace> ranks(3, place("a", 7, 4, {{"SLURM_LOCALID", "2"}}));
  EXPECT_THAT(devices_of(choose_devices(ranks, Path::nccl)), ElementsAre(0, 1, 2));
  EXPECT_EQ(notices_of(choose_devices(ranks, Path::nccl)), "");
  ranks.assign(3, place("a", 7, 2));
  const auto choices = choose_devices(ranks, Path::staged);
  EXPECT_THAT(devices_of(choices), ElementsAre(0, 1, 0));
  EXPECT_EQ(notices_of(choices),
            "ranks 0, 2 share GPU g0 of host a; each one's peak of memory is that of all\n");
}

/// Containers of one machine have different host names, those of different machines may not.
TEST(DeviceMap, MachinesCountNotTheirNames) {
  auto ranks = places({"0", "1"}, 1);
  ranks[1].host = "b";
  EXPECT_THAT(refusal_of(ranks, Path::nccl), HasSubstr("would share"));
  ranks[1].host = "a";
  ranks[1].machine = "another";
  ranks[1].launcher = {{"MPI_LOCALRANKID", "0"}};
  EXPECT_THAT(devices_of(choose_devices(ranks, Path::nccl)), ElementsAre(0, 0));
}

TEST(DeviceMap, ARankWithoutAGpuIsNamed) {
  auto ranks = places({"0", "1"}, 1);
  ranks[1].devices.clear();
  ranks[1].visible_devices = "none";
  EXPECT_THAT(refusal_of(ranks, Path::staged),
              AllOf(HasSubstr("rank 1 (host a) sees no GPU"), HasSubstr("none")));
}

TEST(DeviceMap, PlacesSurviveTheExchange) {
  RankPlace sent = place_of_this_process();
  EXPECT_FALSE(sent.machine.empty());
  EXPECT_FALSE(sent.host.empty());
  sent.launcher = {{"SLURM_LOCALID", "2"}, {"PMI_LOCAL_RANK", ""}};
  sent.visible_devices = "";
  sent.devices = {"0000:17:00.0", "0000:65:00.0"};
  sent.nccl_version = 23001;
  sent.may_share = true;
  const RankPlace got = place_from(to_text(sent));
  EXPECT_EQ(got.host, sent.host);
  EXPECT_EQ(got.machine, sent.machine);
  EXPECT_EQ(got.pid, sent.pid);
  EXPECT_EQ(got.launcher, sent.launcher);
  EXPECT_EQ(got.visible_devices, sent.visible_devices);
  EXPECT_EQ(got.devices, sent.devices);
  EXPECT_EQ(got.nccl_version, sent.nccl_version);
  EXPECT_EQ(got.may_share, sent.may_share);
}

TEST(MpiSupport, OnlyAnMpiThatSaysSoTakesDeviceAddresses) {
  EXPECT_EQ(why_no_mpi_cuda("mpi", MpiAnswer::yes), "");
  EXPECT_THAT(why_no_mpi_cuda("mpi", MpiAnswer::no), HasSubstr("not to take addresses"));
  EXPECT_THAT(why_no_mpi_cuda("mpi", MpiAnswer::silent), HasSubstr("does not say"));
  EXPECT_THAT(why_no_mpi_cuda("threads", MpiAnswer::yes), HasSubstr("under mpirun"));
  for (const MpiAnswer answer : {MpiAnswer::no, MpiAnswer::silent})
    EXPECT_THAT(why_no_mpi_cuda("mpi", answer), HasSubstr("--transport staged"));
}

TEST(Probe, ShapesFitAndGrow) {
  constexpr std::int64_t plenty = std::int64_t{1} << 40;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const auto all = probe_shapes(dtype, plenty);
    EXPECT_GE(all.size(), 12U);
    EXPECT_TRUE(std::ranges::is_sorted(all, {}, [](const auto& s) { return flops_of(s); }));
  }
  const auto bytes = [](const ProbeShape& s) { return (s.m * s.k + s.k * s.n + s.m * s.n) * 2; };
  constexpr std::int64_t little = 100'000'000;
  const auto few = probe_shapes(DType::bf16, little);
  EXPECT_FALSE(few.empty());
  for (const ProbeShape& shape : few) EXPECT_LE(bytes(shape), little);
  EXPECT_TRUE(probe_shapes(DType::bf16, 1000).empty());
  EXPECT_EQ(flops_of({2, 3, 5, false}), 60);
}

TEST(Probe, TheMedianIsNoMean) {
  EXPECT_EQ(median_of({9, 1, 100}), 9);
  EXPECT_EQ(median_of({4, 1}), 4);
  EXPECT_THROW((void)median_of({}), Error);
}

}  // namespace
}  // namespace shardmark::cuda
