// What ranks of an MPI job find out about GPUs and about their MPI. No GPU is needed.

#include "core/cuda/device_map.hpp"
#include "core/cuda/mpi_support.hpp"
#include "core/error.hpp"
#include "tests/support/mpi_main.hpp"

#include <gmock/gmock.h>
#include <mpi.h>

namespace shardmark::cuda {
namespace {

#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40000000
TEST(MpiSupport, TheLibraryIsAsked) {
  EXPECT_EQ(ask_mpi_for_cuda(), MPIX_Query_cuda_support() == 1 ? MpiAnswer::yes : MpiAnswer::no);
}
#endif

TEST(DeviceMap, RanksUnderALauncherGetAGpuEach) {
  Transport& transport = mpi_transport();
  RankPlace mine = place_of_this_process();
  for (int i = 0; i < transport.size(); ++i) mine.devices.push_back(message('g', i));
  const auto choices = agree_on_devices(transport, mine, Path::nccl, -1);
  for (int rank = 0; rank < transport.size(); ++rank) {
    EXPECT_EQ(choices[static_cast<std::size_t>(rank)].device, rank);
    EXPECT_THAT(choices[static_cast<std::size_t>(rank)].notices, testing::IsEmpty());
  }
}

TEST(DeviceMap, AllRanksNameTheFirstThatLacksSomething) {
  Transport& transport = mpi_transport();
  EXPECT_NO_THROW(agree(transport, ""));
  const int lacking = transport.size() - 1;
  const auto report = [&] { agree(transport, transport.rank() == lacking ? "no driver" : ""); };
  EXPECT_THAT(report, testing::ThrowsMessage<InputError>(testing::HasSubstr(
                          transport.size() == 1 ? "no driver" : message("rank ", lacking))));
  EXPECT_THAT([&] { agree(transport, "no driver"); },
              testing::ThrowsMessage<InputError>(testing::Eq("no driver")));
}

}  // namespace
}  // namespace shardmark::cuda
