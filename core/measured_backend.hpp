#pragma once

#include "core/backend.hpp"
#include "core/record.hpp"

#include <cstdint>
#include <set>
#include <string>

namespace shardmark {

/// Times of the last `synchronize`, from the executor's own clock.
struct ExecutorTimes {
  std::int64_t begin_ns{0}, end_ns{0};  ///< steady clock at entry and exit
  std::int64_t idle_ns{0};              ///< neither a kernel running nor communication in flight
};

/// A backend that says what its device did. What programs measure with, on every kind of device.
class MeasuredBackend : public Backend {
 public:
  /// Kernel times and ranges go here from now on (null: none, and no clock is read).
  virtual void set_kernel_sink(KernelSink* sink) = 0;
  /// On a GPU idle time is known only of a `synchronize` with a kernel sink.
  [[nodiscard]] virtual const ExecutorTimes& times() const = 0;
  /// FLOPs of the compute ops executed since construction: what was observed, not what was planned.
  [[nodiscard]] virtual double flops_executed() const = 0;
  /// Bytes that the communication executed so far sends from this rank (bytes_sent_of), counted
  /// call by call; differences count, since ranks of a transport may have started before.
  [[nodiscard]] virtual double bytes_started() const = 0;
  /// What was done otherwise than could be expected, and why; a sentence each.
  [[nodiscard]] virtual std::set<std::string> notices() const { return {}; }
  /// From now on a thread moves communication along while compute ops run; nothing where the device
  /// does that itself.
  virtual void set_progress_thread(bool) {}
};

}  // namespace shardmark
