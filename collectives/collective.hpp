#pragma once

#include "core/ops.hpp"

#include <cstdint>
#include <optional>
#include <string_view>

namespace shardmark {

/// What is asked for; how is an Algorithm or the transport's own ("native").
enum class Collective : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  all_to_all_v,
  broadcast,
  reduce,
  gather,
  scatter,
  send_recv,  ///< member i sends to member i + 1 (mod n)
  barrier,
};
inline constexpr std::size_t num_collectives = 11;
[[nodiscard]] std::string_view name_of(Collective collective);
/// "all_reduce", "all-reduce", "allreduce" and so on. Nothing if there is no such collective.
[[nodiscard]] std::optional<Collective> parse_collective(std::string_view text);

/// The facts of a collective: how many blocks of one size its buffers have (n: group size), and
/// what crosses a link.
struct CollectiveFacts {
  bool has_root{false}, has_reduction{false};
  /// Blocks of a member's input and output: 1 or n. The block is the unit of `Plan` and of the
  /// tensors in core/ops.hpp; for all_reduce, broadcast and reduce it is the whole buffer.
  bool input_has_n_blocks{false}, output_has_n_blocks{false};
};
[[nodiscard]] const CollectiveFacts& facts_of(Collective collective);

/// Bandwidth over the links per algorithm bandwidth: 2(n-1)/n for all_reduce, (n-1)/n for
/// all_gather, reduce_scatter, all_to_all(_v), gather and scatter, 1 for broadcast, reduce and
/// send_recv, 0 for barrier. Source: nccl-tests, doc/PERFORMANCE.md.
[[nodiscard]] double busbw_factor(Collective collective, int group_size);

/// The larger of a member's two buffers, in elements: what "size" means in results (nccl-tests'
/// convention: the total for all_gather, reduce_scatter, all_to_all, gather and scatter).
[[nodiscard]] std::int64_t total_numel(Collective collective, int group_size,
                                       std::int64_t block_numel);

/// The buffers and the parameters of one call.
struct Call {
  Collective collective{Collective::all_reduce};
  Tensor x{}, y{};  ///< input and output; as the op of the same name wants them
  Group group{};
  int root{0};
  Reduction reduction{Reduction::sum};
  std::span<const std::int64_t> counts{};  ///< all_to_all_v: counts[i * n + j] from i to j
};
/// The transport's own collective.
[[nodiscard]] Op native_op(const Call& call);

}  // namespace shardmark
