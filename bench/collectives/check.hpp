#pragma once

#include "bench/collectives/row.hpp"
#include "core/measured_backend.hpp"

namespace shardmark::bench::collectives {

/// Fills the call's buffers, which are the backend's, with data whose reduction is exact in any
/// order.
void prepare_exact(const Point& point, const Call& call, MeasuredBackend& backend);

/// What one rank finds in its output.
struct Verification {
  std::int64_t num_wrong{0};
  std::string first_wrong;  ///< "element 5: expected 12, got 13"; empty if there is none
};
/// Compares every element that this member's output must have.
[[nodiscard]] Verification verify_exact(const Point& point, const Call& call,
                                        MeasuredBackend& backend);

}  // namespace shardmark::bench::collectives
