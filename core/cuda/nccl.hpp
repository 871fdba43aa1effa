#pragma once

// NCCL as the rest of core/cuda sees it; a build without nccl.h has it too (nccl_absent.cpp).

#include "core/cuda/communicators.hpp"
#include "core/transport.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace shardmark::cuda {

/// Whether NCCL can be used by this process, and which.
struct NcclFacts {
  int version{0};       ///< 22809 for 2.28.9; 0 if there is none
  std::string missing;  ///< which piece is missing; empty if none is
};
[[nodiscard]] NcclFacts nccl_facts();
/// "2.28.9"
[[nodiscard]] std::string nccl_version_text(int version);
/// Every variable NCCL_* of this process' environment with its value, in alphabetical order.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> nccl_settings();

/// Communicators of this rank on the current device, which NCCL remembers. Identifiers go through
/// `transport`, which also says how long to wait for peers and which of them are gone; it must
/// outlive the communicators. Throws InputError where NCCL is missing.
[[nodiscard]] std::unique_ptr<Communicators> open_nccl(Transport& transport);

}  // namespace shardmark::cuda
