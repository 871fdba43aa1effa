// A program whose ranks misbehave on purpose: launch_fault_program MODE [RANK]. RANK (default 1)
// does what MODE says while the others run all-reduces; with MODE interrupt all ranks end in order
// after a signal, with exit code RANK; with MODE busy they note it and go on.
// launch_fault_test.cmake and the shell scripts here check how it ends.

#include "core/error.hpp"
#include "core/launch.hpp"
#include "tests/support/transport_conformance.hpp"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>

namespace shardmark {
namespace {

void misbehave(const std::string& mode, Transport& transport) {
  if (mode == "kill") ::kill(::getpid(), SIGKILL);
  if (mode == "exit0") ::_exit(0);
  if (mode == "stop") ::raise(SIGSTOP);
  if (mode == "loop")
    for (volatile bool forever = true; forever;) continue;
  if (mode == "error") throw Error{"this rank ran out of luck"};
  if (mode == "input") throw InputError{"only this rank was given nonsense"};
  if (mode == "mismatch") transport.barrier();
}

void body(const std::string& mode, int culprit, Transport& transport) {
  transport.set_wait_policy({.yield = transport.wait_policy().yield, .timeout_s = 2});
  if (transport.rank() == 0) std::cerr << describe(transport.endpoints());
  const Group group = conformance::world_of(transport);
  transport.connect(group, Lane::tp);
  if (mode == "input_everywhere") throw InputError{"tp 3 does not divide hidden 64"};
  if (mode == "early_return" && transport.rank() == culprit) return;
  const InterruptFlag interrupt;
  conformance::Data x{DType::f32, 1000};
  const bool is_signalled = mode == "interrupt" || mode == "busy";
  for (int iteration = 0; iteration < (is_signalled ? 1'000'000 : 300); ++iteration) {
    if (iteration == 100 && transport.rank() == culprit) misbehave(mode, transport);
    x.fill([](std::int64_t) { return 0.0; });
    conformance::communicate(transport, AllReduce{x.tensor(), group, Reduction::sum}, Lane::tp);
    if (!is_signalled || iteration % 100 != 0) continue;
    if (mode == "interrupt" && transport.maximum(interrupt.is_set() ? 1 : 0) > 0) {
      if (transport.rank() == 0) std::cout << "interrupted, rows kept\n" << std::flush;
      break;
    }
    if (transport.rank() == 0 && iteration == 0) std::cout << "running\n" << std::flush;
  }
  transport.barrier();
  if (transport.rank() == 0) std::cout << "complete\n";
}

}  // namespace
}  // namespace shardmark

int main(int argc, char** argv) {
  return shardmark::run_main([&] {
    const std::string mode = argc > 1 ? argv[1] : "none";
    const int culprit = argc > 2 ? std::atoi(argv[2]) : 1;
    const int job_code = shardmark::run_mpi(argc, argv, [&](shardmark::Transport& transport) {
      shardmark::body(mode, culprit, transport);
    });
    return mode == "interrupt" ? culprit : job_code;
  });
}
