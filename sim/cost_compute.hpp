#pragma once

#include "core/ops.hpp"
#include "sim/hardware.hpp"

namespace shardmark {

/// The dtype whose peak and rates an op goes by: that of its first operand, ids left out.
[[nodiscard]] DType dtype_of(const Op& op);

/// Microseconds of a compute op by the roofline, from work(op): the launch overhead plus the larger
/// of FLOPs over the rate that ops of this kind, dtype and size reach (without a table, the peak)
/// and bytes over the rate that memory gives such an op (without a table, the bandwidth).
/// Throws InputError when the op has FLOPs of a dtype that the machine has no peak for.
/// Source: Williams, Waterman, Patterson 2009, "Roofline".
[[nodiscard]] double compute_us(const Machine& machine, const Op& op);

}  // namespace shardmark
