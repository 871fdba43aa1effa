#pragma once

#include "core/backend.hpp"

namespace shardmark {

/// Runs a layer program without data: what counts is the op list that the Rank's sink keeps.
class RecordBackend : public Backend {
 public:
  std::byte* allocate(std::int64_t, Category) override { return nullptr; }
  void deallocate(std::byte*, std::int64_t) noexcept override {}
  void execute(const OpRecord&) override {}
  void synchronize() override {}
  void write(const Tensor&, const void*) override {}
  /// Always an Error: there is nothing to read.
  void read(const Tensor& from, void* to) override;
};

}  // namespace shardmark
