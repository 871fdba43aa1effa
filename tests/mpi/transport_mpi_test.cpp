#include "core/cpu/transport_mpi.hpp"

#include "core/error.hpp"
#include "tests/support/backend_conformance.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/transport_conformance.hpp"

#include <gmock/gmock.h>

namespace shardmark {
namespace {

class Conformance : public testing::TestWithParam<conformance::Check> {};

TEST_P(Conformance, Holds) { GetParam().run(mpi_transport()); }

INSTANTIATE_TEST_SUITE_P(Mpi, Conformance, testing::ValuesIn(conformance::checks),
                         [](const auto& check) { return std::string{check.param.name}; });

INSTANTIATE_TEST_SUITE_P(CpuMpi, Conformance, testing::ValuesIn(conformance::backend_checks),
                         [](const auto& check) { return std::string{check.param.name}; });

TEST(MpiTransport, TooLargeACountNamesTheSize) {
  Transport& transport = mpi_transport();
  if (transport.size() == 1) GTEST_SKIP() << "nothing is sent";
  const Group group = conformance::world_of(transport);
  transport.connect(group, Lane::tp);
  const std::int64_t numel = 3'000'000'000 * transport.size();
  const Tensor x{1, DType::f32, Shape{3'000'000'000}, 0, 3'000'000'000, nullptr};
  const Tensor y{2, DType::f32, Shape{numel}, 0, numel, nullptr};
  EXPECT_THAT(
      [&] {
        transport.start(AllGather{x, y, group}, Lane::tp);
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr(std::to_string(numel) + " elements")));
}

/// Longer and shorter than what is received.
TEST(MpiTransport, MessagesThatDoNotMatchNameBothRanks) {
  Transport& transport = mpi_transport();
  if (transport.size() == 1) GTEST_SKIP() << "nothing is sent";
  const Group group = conformance::connected_world(transport);
  for (const std::int64_t numel : {3, 5}) {
    conformance::Data x{DType::f32, numel};
    conformance::Data y{DType::f32, 4};
    if (transport.rank() == 0)
      conformance::communicate(transport, SendRecv{x.tensor(), {}, group, 1, -1}, Lane::tp);
    if (transport.rank() == 1) {
      EXPECT_THAT(
          [&] {
            conformance::communicate(transport, SendRecv{{}, y.tensor(), group, -1, 0}, Lane::tp);
          },
          testing::ThrowsMessage<Error>(testing::HasSubstr(
              message("rank 1 receives 4 x f32 where rank 0 sends ", numel == 3 ? "3" : "more"))));
    }
    transport.barrier();
  }
}

TEST(MpiTransport, FailedCallsNameCallAndReason) {
  EXPECT_THAT([] { SHARDMARK_MPI(MPI_Comm_size(MPI_COMM_NULL, nullptr)); },
              testing::ThrowsMessage<Error>(
                  testing::AllOf(testing::HasSubstr("MPI_Comm_size(MPI_COMM_NULL, nullptr)"),
                                 testing::HasSubstr("communicator"))));
}

}  // namespace
}  // namespace shardmark
