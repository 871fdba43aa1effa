#include "core/launch.hpp"

#include "core/cpu/transport_threads.hpp"
#include "core/error.hpp"
#include "core/host.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <mutex>
#include <span>
#include <system_error>
#include <thread>

namespace shardmark {
namespace {

/// Errors of rank threads in the order in which they came.
class Failures {
 public:
  void ended(int rank, std::exception_ptr error) {
    {
      const std::lock_guard lock{mutex_};
      if (error != nullptr) errors_.emplace_back(rank, std::move(error));
      ++num_ended_;
    }
    changed_.notify_one();
  }

  /// A rank hangs, and has been told of.
  void hangs() {
    {
      const std::lock_guard lock{mutex_};
      hangs_ = true;
    }
    changed_.notify_one();
  }

  /// Waits until all ranks have ended; false if some run on two seconds after a failure.
  bool wait_for(int ranks) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return num_ended_ == ranks || hangs_ || !errors_.empty(); });
    return changed_.wait_for(lock, std::chrono::seconds{2}, [&] { return num_ended_ == ranks; });
  }

  /// The error that made the others fail: the first that does not merely tell of a peer. When all
  /// do, a time-out that names the silent peers tells most.
  std::pair<int, std::exception_ptr> cause() {
    const std::lock_guard lock{mutex_};
    if (errors_.empty()) return {};
    const auto found = std::ranges::find_if(
        errors_, [](const auto& failure) { return !is_a<PeerError>(failure.second); });
    if (found != errors_.end()) return *found;
    const auto timeout = std::ranges::find_if(
        errors_, [](const auto& failure) { return is_a<TimeoutError>(failure.second); });
    return timeout == errors_.end() ? errors_.front() : *timeout;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<int, std::exception_ptr>> errors_;
  int num_ended_{0};
  bool hangs_{false};
};

void run_rank(ThreadWorld& world, Failures& failures, int rank, const RankBody& body) {
  std::exception_ptr error;
  try {
    ThreadTransport transport{world, rank};
    transport.set_wait_policy({.yield = world.size() > cores_available()});
    const Watchdog watchdog{
        transport.activity(), [&](const std::string& text) {
          print_error(std::make_exception_ptr(TimeoutError{text}), {rank, host_name(), ::getpid()});
          failures.hangs();
        }};
    body(transport);
    world.finish(rank);
  } catch (...) {
    error = std::current_exception();
    world.fail(rank, text_of(error));
  }
  failures.ended(rank, error);
}

}  // namespace

void run_threads(int ranks, const RankBody& body) {
  if (ranks < 1 || ranks > max_thread_ranks)
    throw InputError{message("ranks ", ranks, " is not between 1 and ", max_thread_ranks,
                             ", the most that run as threads of one process; start more under "
                             "mpirun over several hosts, or use --dry-run")};
  ThreadWorld world{ranks};
  Failures failures;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    try {
      threads.emplace_back([&, rank] { run_rank(world, failures, rank, body); });
    } catch (const std::system_error& error) {
      // The ranks that run wait for those that never will.
      std::cerr << message("shardmark: cannot start rank ", rank, " of ", ranks,
                           " as a thread: ", error.what(), "; try fewer --ranks\n")
                << std::flush;
      std::_Exit(1);
    }
  }
  if (!failures.wait_for(ranks)) {
    const auto [rank, error] = failures.cause();
    if (error != nullptr) print_error(error, {rank, host_name(), ::getpid()});
    std::fflush(nullptr);
    std::_Exit(error == nullptr ? 1 : exit_code_of(error));
  }
  for (std::thread& thread : threads) thread.join();
  if (const auto [rank, error] = failures.cause(); error != nullptr) std::rethrow_exception(error);
}

int run_main(const std::function<int()>& program) {
  try {
    const int exit_code = program();
    std::cout.flush();
    if (exit_code == 0 && !std::cout)
      throw Error{"the output could not be written; is the disk full?"};
    return exit_code;
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    std::cerr << message("shardmark: ", text_of(error), '\n') << std::flush;
    return exit_code_of(error);
  }
}

int exit_code_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const InputError&) {
    return 2;
  } catch (...) {
    return 1;
  }
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return known.where().empty() ? known.what() : message(known.what(), " (", known.where(), ")");
  } catch (const std::exception& other) {
    return other.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

void print_error(const std::exception_ptr& error, const Endpoint& at) {
  std::cerr << message("shardmark: rank ", at.rank, " (", at.host, "): ", text_of(error), '\n')
            << std::flush;
}

std::string describe(const std::vector<Endpoint>& endpoints) {
  std::string text;
  for (std::size_t first = 0, next = 0; first < endpoints.size(); first = next) {
    const Endpoint& at = endpoints[first];
    while (next < endpoints.size() && endpoints[next].pid == at.pid &&
           endpoints[next].host == at.host)
      ++next;
    text += next == first + 1 ? message("rank ", at.rank)
                              : message("ranks ", at.rank, '-', endpoints[next - 1].rank);
    text += message("  host ", at.host, "  pid ", at.pid, '\n');
  }
  return text;
}

bool is_oversubscribed(Transport& transport, int threads_per_rank) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  ::sched_getaffinity(0, sizeof mine, &mine);
  const auto packed = transport.exchange(std::as_bytes(std::span{&mine, 1}));
  std::vector<cpu_set_t> masks(static_cast<std::size_t>(transport.size()));
  std::memcpy(masks.data(), packed.data(), packed.size());
  const auto& endpoints = transport.endpoints();
  for (const Endpoint& host : endpoints) {
    cpu_set_t usable;
    CPU_ZERO(&usable);
    int num_threads = 0;
    for (const Endpoint& rank : endpoints) {
      const cpu_set_t& mask = masks[static_cast<std::size_t>(rank.rank)];
      if (rank.host != host.host) continue;
      CPU_OR(&usable, &usable, &mask);
      num_threads += threads_per_rank;
      if (threads_per_rank > CPU_COUNT(&mask)) return true;
    }
    if (num_threads > CPU_COUNT(&usable)) return true;
  }
  return false;
}

namespace {

// A signal handler can reach nothing but a static variable.
std::atomic<int> signal_seen{0}, num_seen{0};
static_assert(std::atomic<int>::is_always_lock_free);
std::array<struct sigaction, 2> actions_before;
constexpr std::array<int, 2> interrupting{SIGINT, SIGTERM};

void note_signal(int signal, siginfo_t* info, void*) {
  // What a Keeper passes on says the how many-th it is, and may be here already: launchers signal
  // whole process groups.
  const bool is_passed_on = info->si_code == SI_QUEUE;
  int seen = num_seen, number = 0;
  do {
    number = is_passed_on ? std::max(1, info->si_value.sival_int) : seen + 1;
    if (number <= seen) return;
  } while (!num_seen.compare_exchange_weak(seen, number));
  signal_seen = signal;
  if (number > 1) ::_exit(128 + signal);
}

}  // namespace

InterruptFlag::InterruptFlag() {
  signal_seen = 0;
  num_seen = 0;
  stack_t stack{};
  ::sigaltstack(nullptr, &stack);
  if ((stack.ss_flags & SS_DISABLE) != 0) {  // sanitizers set one up themselves
    constexpr long enough = 1 << 16;         // registers alone take 3 KiB with AVX-512
    stack_.resize(static_cast<std::size_t>(std::max(2 * ::sysconf(_SC_SIGSTKSZ), enough)));
    stack = {.ss_sp = stack_.data(), .ss_flags = 0, .ss_size = stack_.size()};
    ::sigaltstack(&stack, nullptr);
  }
  struct sigaction action {};
  action.sa_sigaction = note_signal;
  action.sa_flags = SA_RESTART | SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < interrupting.size(); ++i)
    ::sigaction(interrupting[i], &action, &actions_before[i]);
}

InterruptFlag::~InterruptFlag() {
  for (std::size_t i = 0; i < interrupting.size(); ++i)
    ::sigaction(interrupting[i], &actions_before[i], nullptr);
  if (stack_.empty()) return;
  const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  ::sigaltstack(&none, nullptr);
}

bool InterruptFlag::is_set() const { return signal_seen != 0; }

int InterruptFlag::exit_code() const {
  const int signal = signal_seen;
  return signal == 0 ? 0 : 128 + signal;
}

}  // namespace shardmark
