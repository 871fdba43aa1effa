// Runs GoogleTest on every rank of an MPI job. Rank 0 reports as usual, the others only failures.

#include "core/error.hpp"
#include "core/launch.hpp"
#include "tests/support/mpi_main.hpp"

#include <gmock/gmock.h>

#include <iostream>

namespace shardmark {
namespace {

Transport* the_transport = nullptr;

class FailuresOnly : public testing::EmptyTestEventListener {
 public:
  explicit FailuresOnly(int rank) : rank_{rank} {}
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed())
      std::cerr << message("rank ", rank_, ": ",
                           result.file_name() == nullptr ? "" : result.file_name(), ':',
                           result.line_number(), ": ", result.message(), '\n');
  }

 private:
  int rank_;
};

void run_tests(Transport& transport) {
  the_transport = &transport;
  transport.set_wait_policy({.yield = transport.wait_policy().yield, .timeout_s = 20});
  if (transport.rank() != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly{transport.rank()});
  }
  if (RUN_ALL_TESTS() != 0) throw Error{"tests failed"};
}

}  // namespace

Transport& mpi_transport() { return *the_transport; }

}  // namespace shardmark

int main(int argc, char** argv) {
  return shardmark::run_main([&] {
    testing::InitGoogleMock(&argc, argv);
    return shardmark::run_mpi(argc, argv, shardmark::run_tests);
  });
}
