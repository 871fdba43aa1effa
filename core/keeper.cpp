#include "core/keeper.hpp"

#include "core/error.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <initializer_list>
#include <string>

namespace shardmark {
namespace {

/// Ends this process. A process' files close before its parent can collect its exit code, and
/// Hydra's proxy collects codes only when something happens on a file while some output is open:
/// when all closes at once, the code is lost. So when the code matters, a child keeps the files
/// open until the code can be collected, and then closes them one after the other.
[[noreturn]] void end(int exit_code) {
  const pid_t keeper = ::getpid();
  if (exit_code != 0 && ::fork() == 0) {
    while (::getppid() == keeper) ::usleep(1000);
    constexpr useconds_t pause_us = 20'000;
    ::usleep(pause_us);
    ::close_range(STDERR_FILENO + 1, ~0U, 0);
    ::usleep(pause_us);
    ::close(STDOUT_FILENO);
    ::usleep(pause_us);
  }
  ::_exit(exit_code);
}

sigset_t set_of(std::initializer_list<int> signals) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : signals) ::sigaddset(&set, signal);
  return set;
}

/// Signals that somebody sent to this process only reach the rank from here. Launchers signal the
/// whole process group, some this process besides: by the end of a pause the rank has its own, and
/// what came here meanwhile was the same. The queued one says how many there have been, so that an
/// InterruptFlag can tell whether it has seen this one.
void pass_on(pid_t rank, int signal, int number) {
  ::usleep(100'000);
  const sigset_t interrupts = set_of({SIGINT, SIGTERM});
  const timespec at_once{};
  while (::sigtimedwait(&interrupts, nullptr, &at_once) > 0) continue;
  ::sigqueue(rank, signal, {.sival_int = number});
}

/// Waits for the rank and ends this process; skips everything that belongs to the program.
/// `awaited` are blocked: they stay until they are asked for, and none is lost.
[[noreturn]] void keep(pid_t rank, int marker, const sigset_t& awaited) {
  ::prctl(PR_SET_NAME, "shardmark-keep");
  for (const int signal : {SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE}) std::signal(signal, SIG_IGN);
  int status = 0, num_passed_on = 0;
  while (::waitpid(rank, &status, WNOHANG) == 0)
    if (const int signal = ::sigwaitinfo(&awaited, nullptr); signal == SIGINT || signal == SIGTERM)
      pass_on(rank, signal, ++num_passed_on);
  if (WIFSIGNALED(status)) end(128 + WTERMSIG(status));
  char done = 0;
  if (WEXITSTATUS(status) != 0 || ::read(marker, &done, 1) == 1) end(WEXITSTATUS(status));
  const std::string text =
      message("shardmark: pid ", rank, " ended with exit code 0 before its work was done\n");
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  end(1);
}

}  // namespace

Keeper::Keeper() {
  std::array<int, 2> ends{};
  SHARDMARK_CHECK(::pipe2(ends.data(), O_CLOEXEC) == 0, "pipe: ", std::strerror(errno));
  const pid_t keeper = ::getpid();
  const sigset_t awaited = set_of({SIGINT, SIGTERM, SIGCHLD});
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &awaited, &before);
  const pid_t rank = ::fork();
  SHARDMARK_CHECK(rank >= 0, "fork: ", std::strerror(errno));
  if (rank > 0) {
    ::close(ends[1]);
    keep(rank, ends[0], awaited);
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  ::close(ends[0]);
  marker_ = ends[1];
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != keeper) ::_exit(1);
}

Keeper::~Keeper() { ::close(marker_); }

void Keeper::completed() {
  const char done = 1;
  SHARDMARK_CHECK(::write(marker_, &done, 1) == 1, "marker: ", std::strerror(errno));
}

}  // namespace shardmark
