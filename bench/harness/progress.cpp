#include "bench/harness/progress.hpp"

#include <fmt/format.h>

#include <cstdio>

namespace shardmark::bench {

void Progress::start(std::size_t index, const std::string& what) {
  constexpr std::chrono::seconds quiet{5};
  const Clock::time_point now = Clock::now();
  if (!started_) {
    started_ = true;
    begin_ = now;
    first_ = index;
  }
  if (!terminal_ && last_print_ != Clock::time_point{} && now - last_print_ < quiet) return;
  last_print_ = now;
  std::string line = fmt::format("[{}/{}] {}", index + 1, num_rows_, what);
  if (index > first_) {
    const double elapsed = std::chrono::duration<double>(now - begin_).count();
    const auto done = static_cast<double>(index - first_);
    const auto left = static_cast<double>(num_rows_ - index);
    line += fmt::format(" (about {} left)", format_duration(elapsed / done * left));
  }
  fmt::print(stderr, "{}{}{}", terminal_ ? "\r\033[K" : "", line, terminal_ ? "" : "\n");
  std::fflush(stderr);
}

void Progress::clear() {
  if (!terminal_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

std::string format_duration(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", seconds);
  if (seconds < 5400) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

}  // namespace shardmark::bench
