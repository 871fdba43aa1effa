#pragma once

#include "core/backend.hpp"

namespace shardmark {

/// What the ops mean, for comparisons: each is computed in f64 as core/ops.hpp defines it, rounded
/// once per stored element, and shares no code with the cpu backend. Runs an op when it is
/// submitted, which is one of the orders its lanes and fences allow, and throws its error there.
/// For one rank: communication over more than one is an Error.
class ReferenceBackend final : public Backend {
 public:
  std::byte* allocate(std::int64_t bytes, Category category) override;
  void deallocate(std::byte* data, std::int64_t bytes) noexcept override;
  void execute(const OpRecord& record) override;
  void synchronize() override {}
  void write(const Tensor& to, const void* from) override;
  void read(const Tensor& from, void* to) override;
};

}  // namespace shardmark
