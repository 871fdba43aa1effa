#pragma once

#include "bench/harness/measure.hpp"

namespace shardmark::bench {

/// Receives the rows of a run on rank 0, in order.
class ResultSink {
 public:
  ResultSink() = default;
  ResultSink(const ResultSink&) = delete;
  ResultSink& operator=(const ResultSink&) = delete;
  virtual ~ResultSink() = default;

  /// One finished row: measured, skipped or failed. Throws Error when it cannot be kept.
  virtual void add(const Outcome& row) = 0;
  /// No more rows. `complete` is false when the run was interrupted.
  virtual void finish(bool complete) { (void)complete; }
};

}  // namespace shardmark::bench
