#pragma once

#include "core/ops.hpp"
#include "core/types.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace shardmark {

/// Element-wise reduction of `sources` in their order, written to every target; each is `numel`
/// elements of `dtype`. bf16 is accumulated in f32 and rounded once; i32 sums wrap around. A target
/// may be one of the sources (equal address) but must not overlap one in part.
void reduce(DType dtype, Reduction reduction, std::span<const std::byte* const> sources,
            std::span<std::byte* const> targets, std::int64_t numel);

/// accumulated[i] = accumulated[i] + x[i] (or the larger one) in bf16, rounded after each call:
/// what an MPI reduction function has to do.
void reduce_bf16(Reduction reduction, const std::uint16_t* x, std::uint16_t* accumulated,
                 std::int64_t numel);

}  // namespace shardmark
