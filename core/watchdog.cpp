#include "core/watchdog.hpp"

#include "core/error.hpp"

#include <chrono>

namespace shardmark {

// Either `rest` sees held_, or `hold` sees that the rank is at rest: both write before they read.
void Activity::rest() {
  op_.store(nullptr, std::memory_order_seq_cst);
  while (held_.load(std::memory_order_seq_cst))
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
}

bool Activity::hold(const At& at) {
  held_.store(true, std::memory_order_seq_cst);
  if (op_.load(std::memory_order_seq_cst) != nullptr && read() == at) return true;
  held_.store(false, std::memory_order_seq_cst);
  return false;
}

Watchdog::Watchdog(Activity& activity, Report report)
    : activity_{activity}, report_{std::move(report)}, thread_{[this] { watch(); }} {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock{mutex_};
    stop_ = true;
  }
  stopped_.notify_one();
  thread_.join();
}

void Watchdog::watch() {
  constexpr std::chrono::milliseconds nap{200};
  constexpr double nap_s = 0.2;
  // Longer than a wait goes without `tick`.
  constexpr double margin_s = 0.5;
  Activity::At last;
  std::uint64_t last_ticks = 0;
  // Counted in naps: the time for which the whole process was stopped must not count.
  double unchanged_s = 0;
  std::unique_lock lock{mutex_};
  while (!stopped_.wait_for(lock, nap, [this] { return stop_; })) {
    const Activity::At now = activity_.read();
    const std::uint64_t ticks = activity_.ticks_.load(Activity::relaxed);
    const bool same = now.op != nullptr && now == last && ticks == last_ticks;
    unchanged_s = same ? unchanged_s + nap_s : 0;
    last = now;
    last_ticks = ticks;
    const double limit_s = activity_.limit_s_.load(Activity::relaxed);
    if (unchanged_s < limit_s + margin_s || !activity_.hold(now)) continue;
    const bool has_path = now.path != nullptr && !now.path->empty();
    const std::string text =
        message("watchdog: lane ", name_of(now.lane), " at ", has_path ? *now.path : "-", ": ",
                now.op, " #", now.seq, " has not ended for ", limit_s, " s (--timeout)");
    lock.unlock();
    report_(text);
    return;
  }
}

}  // namespace shardmark
