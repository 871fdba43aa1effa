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

TEST(MpiTransport, FailedCallsNameCallAndReason) {
  EXPECT_THAT([] { SHARDMARK_MPI(MPI_Comm_size(MPI_COMM_NULL, nullptr)); },
              testing::ThrowsMessage<Error>(
                  testing::AllOf(testing::HasSubstr("MPI_Comm_size(MPI_COMM_NULL, nullptr)"),
                                 testing::HasSubstr("communicator"))));
}

}  // namespace
}  // namespace shardmark
