#pragma once

#include "core/transport.hpp"

#include <cstddef>
#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace shardmark {

/// What one rank does, from start to end.
using RankBody = std::function<void(Transport&)>;

/// Ranks as threads all share one process' memory and wait for each other: more make no sense.
inline constexpr int max_thread_ranks = 1024;

/// Runs `body` as `ranks` threads of this process and waits for all of them. When ranks fail,
/// rethrows the error that made the others fail. A rank that does not end within two seconds of a
/// failure cannot be stopped: the error is printed and the process ends with its exit code. A
/// Watchdog does the same for a rank that hangs.
void run_threads(int ranks, const RankBody& body);

/// Runs `body` as this process' rank of the MPI job and returns the exit code. Errors are printed
/// here: one that all ranks share once, by the lowest rank. The job ends with code 0 only if every
/// rank saw rank 0 come back from `body`; an error that only some ranks see ends the others, and so
/// does a rank that hangs.
/// Throws InputError if the program was built without MPI.
[[nodiscard]] int run_mpi(int argc, char** argv, const RankBody& body);

/// Calls `program`; prints an error that leaves it and returns the exit code.
[[nodiscard]] int run_main(const std::function<int()>& program);

template <class Kind>
[[nodiscard]] bool is_a(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Kind&) {
    return true;
  } catch (...) {
    return false;
  }
}
/// 2 for InputError, 1 for everything else.
[[nodiscard]] int exit_code_of(const std::exception_ptr& error);
/// "hidden 1000 is ..." and, for an internal error, where it was thrown.
[[nodiscard]] std::string text_of(const std::exception_ptr& error);
/// "shardmark: rank 1 (host): " + text_of(error), to stderr, in one piece.
void print_error(const std::exception_ptr& error, const Endpoint& at);

/// One line per rank, "rank 0  host a  pid 71"; consecutive ranks of one process share a line.
[[nodiscard]] std::string describe(const std::vector<Endpoint>& endpoints);

/// True on all ranks if the ranks' threads outnumber the cores of a host (those its ranks may use).
/// Collective. Waiting ranks have to yield then: WaitPolicy::yield.
[[nodiscard]] bool is_oversubscribed(Transport& transport, int threads_per_rank);

/// While it lives, SIGINT and SIGTERM set a flag instead of ending the process; a second signal
/// ends it at once, with the code a shell expects (128 + signal). At most one at a time, on the
/// process's first thread, which is where the kernel delivers signals. They are handled on a stack
/// of their own: oneDNN's sgemm points the stack pointer into the heap while it computes.
class InterruptFlag {
 public:
  InterruptFlag();
  InterruptFlag(const InterruptFlag&) = delete;
  InterruptFlag& operator=(const InterruptFlag&) = delete;
  ~InterruptFlag();
  /// True once a signal came. The ranks do not see it at the same moment: agree before acting on
  /// it.
  [[nodiscard]] bool is_set() const;
  /// 128 + the signal, or 0.
  [[nodiscard]] int exit_code() const;

 private:
  std::vector<std::byte> stack_;  ///< empty where the thread has one already
};

}  // namespace shardmark
