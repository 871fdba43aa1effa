#pragma once

#include "core/ops.hpp"
#include "core/types.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace shardmark {

// Arithmetic of collectives on any dtype. bf16 and f16 are computed in f32; integer sums and
// products wrap around; integers divide towards zero.

/// Element-wise reduction of `sources` in their order, written to every target; each is `numel`
/// elements of `dtype`. bf16 and f16 are accumulated in f32 and rounded once. A target may be one
/// of the sources (equal address) but must not overlap one in part.
void reduce(DType dtype, Reduction reduction, std::span<const std::byte* const> sources,
            std::span<std::byte* const> targets, std::int64_t numel);

/// y[i] = y[i] (reduction) x[i], rounded to the dtype; `avg` adds like `sum`.
void combine(DType dtype, Reduction reduction, const std::byte* x, std::byte* y,
             std::int64_t numel);

/// x[i] = x[i] / divisor.
void divide(DType dtype, std::byte* x, std::int64_t numel, int divisor);

}  // namespace shardmark
