#pragma once

#include "core/ops.hpp"
#include "core/types.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace shardmark {

/// One submitted op. `path` points into its Rank's table of scope paths ("step/block0/mlp") and
/// lives as long as the Rank.
struct OpRecord {
  std::uint32_t seq{0};  ///< position in the rank's submission order, from 0
  Lane lane{Lane::compute};
  const std::string* path{nullptr};
  Op op;
};

/// One interval of work on a device: a kernel, or one tile of a long one, or one communication.
struct KernelRecord {
  std::uint32_t op_seq{0};   ///< OpRecord::seq of the op it belongs to
  Lane lane{Lane::compute};  ///< the stream
  OpKind kind{OpKind::compute};
  const char* name{""};                 ///< implementation as its library calls it; static storage
  std::int64_t start_ns{0}, end_ns{0};  ///< steady clock of the process
};

/// An allocation or release; `bytes` is positive or negative.
struct MemoryRecord {
  std::uint32_t op_seq{0};  ///< number of ops submitted before
  std::uint32_t buffer{0};
  Category category{Category::activation};
  std::int64_t bytes{0};
};

/// Receives every op as it is submitted (the "tee"). Called on the submitting thread.
class OpSink {
 public:
  virtual ~OpSink() = default;
  virtual void on_op(const OpRecord& record) = 0;
  virtual void on_memory(const MemoryRecord&) {}
};

/// Receives what a backend observes while ops run. Called on the thread that runs them.
class KernelSink {
 public:
  virtual ~KernelSink() = default;
  /// Whether it wants on_kernel; where not, a GPU need not find out when ops ran.
  [[nodiscard]] virtual bool wants_times() const { return true; }
  /// Around each op, where it runs (on a GPU: where it is enqueued): profiler ranges are opened
  /// here. Communication on one lane can begin before and end after ops of other lanes; ranges of
  /// one lane never overlap.
  virtual void on_begin(const OpRecord&) {}
  virtual void on_end(const OpRecord&) {}
  virtual void on_kernel(const KernelRecord&) {}
};

/// Keeps everything it is told; the recording tee of the record backend and of profiled passes.
class OpList final : public OpSink {
 public:
  void on_op(const OpRecord& record) override { ops.push_back(record); }
  void on_memory(const MemoryRecord& record) override { memory.push_back(record); }
  std::vector<OpRecord> ops;
  std::vector<MemoryRecord> memory;
};

/// Text form of one record, without addresses: equal on every backend. Used by golden tests and
/// `--dry-run`. Example: `12 compute step/mlp matmul f32 3+0:64x128 4+0:128x256 -> 5+0:64x256`.
[[nodiscard]] std::string to_string(const OpRecord& record);

}  // namespace shardmark
