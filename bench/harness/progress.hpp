#pragma once

#include <chrono>
#include <string>

namespace shardmark::bench {

/// "[3/16] block step ... (about 40 s left)" on stderr: before every row on a terminal, every few
/// seconds elsewhere.
class Progress {
 public:
  Progress(std::size_t num_rows, bool is_terminal) : num_rows_{num_rows}, terminal_{is_terminal} {}
  /// Row `index` starts.
  void start(std::size_t index, const std::string& what);
  /// Wipes the line, so that a table line can follow.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  std::size_t num_rows_, first_{0};
  bool terminal_, started_{false};
  Clock::time_point begin_{}, last_print_{};
};

/// "40 s", "3 min", "1.5 h".
[[nodiscard]] std::string format_duration(double seconds);

}  // namespace shardmark::bench
