#include "core/cpu/death_notice.hpp"

#include "core/error.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>

namespace shardmark {
namespace {

struct Prepared {
  std::string stat_path, text;
  volatile std::sig_atomic_t printed{0};
};

// All a signal handler can reach. Written once, before the handler is installed.
std::vector<Prepared>& prepared() {
  static std::vector<Prepared> notices;
  return notices;
}

/// Like process_state(), with nothing but calls that a signal handler may make.
bool is_dead(const char* stat_path) {
  const int file = ::open(stat_path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno == ENOENT;
  std::array<char, 512> bytes{};
  const ssize_t count = ::read(file, bytes.data(), bytes.size());
  ::close(file);
  if (count <= 0) return errno == ESRCH;
  const std::string_view text{bytes.data(), static_cast<std::size_t>(count)};
  const std::size_t end = text.rfind(')');
  if (end == std::string_view::npos || end + 2 >= text.size()) return false;
  return text[end + 2] == 'Z' || text[end + 2] == 'X';
}

void on_sigusr1(int) {
  const int errno_before = errno;
  for (Prepared& notice : prepared()) {
    if (notice.printed != 0 || !is_dead(notice.stat_path.c_str())) continue;
    notice.printed = 1;
    [[maybe_unused]] const ssize_t written =
        ::write(STDERR_FILENO, notice.text.data(), notice.text.size());
  }
  errno = errno_before;
}

}  // namespace

void print_death_notices_on_sigusr1(const std::vector<WatchedProcess>& processes) {
  std::signal(SIGUSR1, SIG_IGN);
  prepared().clear();
  for (const WatchedProcess& process : processes)
    prepared().push_back({message("/proc/", process.pid, "/stat"), process.notice + "\n"});
  struct sigaction action {};
  action.sa_handler = on_sigusr1;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGUSR1, &action, nullptr);
}

}  // namespace shardmark
