#pragma once

#include "core/record.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace shardmark {

/// Forwards to several sinks in order; null ones are left out. The sinks must outlive it.
class KernelFanout final : public KernelSink {
 public:
  explicit KernelFanout(std::vector<KernelSink*> sinks) : sinks_{std::move(sinks)} {
    std::erase(sinks_, nullptr);
  }

  [[nodiscard]] bool wants_times() const override {
    return std::ranges::any_of(sinks_, &KernelSink::wants_times);
  }
  void on_begin(const OpRecord& record) override {
    for (KernelSink* sink : sinks_) sink->on_begin(record);
  }
  void on_end(const OpRecord& record) override {
    for (KernelSink* sink : sinks_) sink->on_end(record);
  }
  void on_kernel(const KernelRecord& record) override {
    for (KernelSink* sink : sinks_) sink->on_kernel(record);
  }

 private:
  std::vector<KernelSink*> sinks_;
};

}  // namespace shardmark
