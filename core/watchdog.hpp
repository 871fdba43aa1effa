#pragma once

#include "core/record.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace shardmark {

/// What a rank is at, readable from another thread. The rank's thread writes it, with plain stores:
/// per op it costs about a nanosecond.
class Activity {
 public:
  /// The rank has submitted, or now runs, this op, whose path stays valid until `rest`.
  void at(const OpRecord& record) {
    write({record.path, name_of(record.op).data(), record.seq, record.lane});
  }
  /// The rank looks for what it waits for: it does not hang.
  void tick() { ticks_.store(ticks_.load(relaxed) + 1, relaxed); }
  /// No op is submitted or runs. Does not return once a Watchdog has reported this rank.
  void rest();

  /// `at`, and back to what it was at before when it ends.
  class Step {
   public:
    Step(Activity& activity, const OpRecord& record)
        : activity_{activity}, before_{activity.read()} {
      activity.at(record);
    }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;
    ~Step() { activity_.write(before_); }

   private:
    friend class Activity;
    struct At {
      const std::string* path{nullptr};
      const char* op{nullptr};  ///< null: at rest
      std::uint32_t seq{0};
      Lane lane{Lane::compute};
      bool operator==(const At&) const = default;
    };
    Activity& activity_;
    At before_;
  };

  void set_limit(double limit_s) { limit_s_.store(limit_s, relaxed); }

 private:
  friend class Watchdog;
  static constexpr auto relaxed = std::memory_order_relaxed;
  using At = Step::At;

  void write(const At& at) {
    path_.store(at.path, relaxed);
    place_.store(std::uint64_t{at.seq} << 8 | index_of(at.lane), relaxed);
    op_.store(at.op, relaxed);
  }
  [[nodiscard]] At read() const {
    const std::uint64_t place = place_.load(relaxed);
    return {path_.load(relaxed), op_.load(relaxed), static_cast<std::uint32_t>(place >> 8),
            static_cast<Lane>(place & 0xFF)};
  }
  /// The rank is held at its next `rest`, so that the path may be read. False if it has moved on.
  [[nodiscard]] bool hold(const At& at);

  std::atomic<const std::string*> path_{nullptr};
  std::atomic<const char*> op_{nullptr};
  std::atomic<std::uint64_t> place_{0}, ticks_{0};
  std::atomic<double> limit_s_{0};
  std::atomic<bool> held_{false};
};

/// A thread that looks a few times a second whether its rank hangs: in an op, or between submitting
/// one and running it. Waits see for themselves what they wait for and count as activity.
class Watchdog {
 public:
  using Report = std::function<void(const std::string& text)>;
  /// Calls `report` once, on its own thread, when nothing has changed for the activity's limit and
  /// half a second more: "watchdog: lane tp at step/mlp: all_reduce #7 has not ended for 30 s
  /// (--timeout)". The rank cannot go on afterwards: whoever gets the report ends the process.
  Watchdog(Activity& activity, Report report);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

 private:
  void watch();

  Activity& activity_;
  Report report_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_{false};
  std::thread thread_;
};

}  // namespace shardmark
