#include "core/error.hpp"
#include "core/launch.hpp"

#ifdef SHARDMARK_HAVE_MPI

#include "core/cpu/transport_mpi.hpp"
#include "core/host.hpp"
#include "core/keeper.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

namespace shardmark {
namespace {

/// Prints and ends the job. MPI_Abort kills the peers, so those that also have something to say get
/// the time to say it: where they wait, and first of all the rank that knows who is silent.
[[noreturn]] void end_job(MpiTransport& transport, const std::exception_ptr& error) {
  const Endpoint& here = transport.endpoints()[static_cast<std::size_t>(transport.rank())];
  print_error(error, here);
  if (is_a<TimeoutError>(error))
    std::this_thread::sleep_for(std::chrono::milliseconds{300});
  else if (is_a<PeerError>(error))
    std::this_thread::sleep_for(std::chrono::milliseconds{1500});
  transport.abort(exit_code_of(error));
}

/// Called on the Watchdog's thread, which must not call MPI: the launcher ends the others. Those
/// that wait for this rank get the time to say so.
[[noreturn]] void end_hanging_rank(const MpiTransport& transport, const std::string& text) {
  const auto rank = static_cast<std::size_t>(transport.rank());
  print_error(std::make_exception_ptr(TimeoutError{text}), transport.endpoints()[rank]);
  std::this_thread::sleep_for(std::chrono::milliseconds{1500});
  ::_exit(1);
}

}  // namespace

int run_mpi(int argc, char** argv, const RankBody& body) {
  std::optional<Keeper> keeper;
  if (!detect_launcher().empty()) keeper.emplace();
  MpiSession session{argc, argv};
  MpiTransport transport;
  transport.set_wait_policy({.yield = is_oversubscribed(transport, 1)});
  std::exception_ptr error;
  try {
    const Watchdog watchdog{transport.activity(),
                            [&](const std::string& text) { end_hanging_rank(transport, text); }};
    body(transport);
  } catch (...) {
    error = std::current_exception();
  }
  if (error != nullptr && is_a<PeerError>(error)) end_job(transport, error);

  // Rank 0's exit code 0 is the completion marker: no rank returns 0 without having received it.
  // Another error may be on all ranks; those that do not see it are busy elsewhere and do not
  // answer.
  MpiTransport::End mine;
  if (error != nullptr) {
    mine.exit_code = exit_code_of(error);
    mine.error_hash = std::hash<std::string>{}(text_of(error));
  }
  constexpr double patience_s = 1.0;
  const auto ends = transport.agree_on_end(mine, error == nullptr ? 0 : patience_s);
  if (ends.empty() && error == nullptr)
    error = std::make_exception_ptr(PeerError{transport.find_dead_peer() + " before the end"});
  if (ends.empty()) end_job(transport, error);
  if (error != nullptr) {
    const auto first = std::ranges::find(ends, mine.error_hash, &MpiTransport::End::error_hash);
    const auto rank = static_cast<std::size_t>(transport.rank());
    if (first - ends.begin() == transport.rank())
      print_error(error, transport.endpoints()[rank]);
    else
      std::this_thread::sleep_for(std::chrono::milliseconds{100});
  }
  const auto worst = std::ranges::max(ends, {}, &MpiTransport::End::exit_code).exit_code;
  // Bad input is found before anything is in flight. After other errors MPI may wait for messages
  // that never come, so it is not finalized.
  const bool orderly = std::ranges::all_of(
      ends, [](const auto& end) { return end.exit_code == 0 || end.exit_code == 2; });
  if (!orderly) transport.abort(static_cast<int>(worst));
  if (worst == 0 && keeper) keeper->completed();
  return static_cast<int>(worst);
}

}  // namespace shardmark

#else

namespace shardmark {

int run_mpi(int, char**, const RankBody&) {
  throw InputError{
      "this program was built without MPI; use --transport threads --ranks N, or install MPICH and "
      "build again"};
}

}  // namespace shardmark

#endif
