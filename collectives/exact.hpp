#pragma once

#include "collectives/collective.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace shardmark {

/// Data whose result is the same bits in whatever order it is reduced: small integers, so that
/// every partial sum is exact. A function of (seed, member, element), so that nobody has to send
/// it; it differs from element to element, so that a chunk in the wrong place shows. Exact on any
/// number of members; where there are more of them than the dtype has integers (128 in i8, 256 in
/// bf16), sums have zeros among the inputs, and averages are 0 from half as many on.
struct ExactData {
  Collective collective{Collective::all_reduce};
  DType dtype{DType::f32};
  Reduction reduction{Reduction::sum};
  int group_size{1};
  int root{0};
  std::int64_t block_numel{0};             ///< see CollectiveFacts
  std::span<const std::int64_t> counts{};  ///< all_to_all_v only
  std::uint32_t seed{0};                   ///< another one each time finds stale results

  /// Elements of `member`'s buffers; 0 where it has none.
  [[nodiscard]] std::int64_t input_numel(int member) const;
  [[nodiscard]] std::int64_t output_numel(int member) const;
};

/// Writes `member`'s input of `dtype` to host memory. The range is elements [first, first + count)
/// of the input.
void fill_exact(const ExactData& data, int member, std::int64_t first, std::int64_t count,
                void* to);
inline void fill_exact(const ExactData& data, int member, void* to) {
  fill_exact(data, member, 0, data.input_numel(member), to);
}

/// What `member`'s output should be, written like an input.
void fill_expected(const ExactData& data, int member, void* to);

struct ExactResult {
  std::int64_t num_wrong{0};
  std::int64_t first_wrong{-1};
  double expected{0}, got{0};  ///< of the first wrong element
  /// "3 of 64 elements are wrong, the first at 5: expected 12, got 13", or empty.
  [[nodiscard]] std::string to_string(std::int64_t numel) const;
};
/// Compares `member`'s output in host memory with what it should be, by value.
[[nodiscard]] ExactResult check_exact(const ExactData& data, int member, const void* got);

}  // namespace shardmark
