#pragma once

// Rank and CpuBackend on top of a transport: submission, lanes, fences. Run like the checks of
// transport_conformance.hpp, on threads and on MPI.

#include "core/cpu/backend.hpp"
#include "core/functions.hpp"
#include "core/rank.hpp"
#include "tests/support/transport_conformance.hpp"

namespace shardmark::conformance {

/// Everything a rank of a tp-only mesh needs.
struct CpuRank {
  explicit CpuRank(Transport& its_transport)
      : transport{its_transport},
        mesh{{.tp = transport.size()}},
        tp{mesh.group(transport.rank(), Axis::tp)},
        rank{transport.rank(), mesh, backend} {
    transport.connect(tp, Lane::tp);
    transport.connect(tp, Lane::cp);
  }
  [[nodiscard]] Buffer integers(const Shape& shape, DType dtype, int seed) {
    Buffer buffer = rank.allocate(shape, dtype, Category::activation);
    Data data{dtype, shape.numel()};
    data.fill([&](std::int64_t i) { return value_at(seed, i) / 4; });
    backend.write(buffer.tensor(), data.tensor().data);
    return buffer;
  }
  template <class Function>
  void expect(const Tensor& tensor, const std::string& what, const Function& expected) {
    Data data{tensor.dtype, tensor.numel()};
    backend.read(tensor, data.tensor().data);
    data.expect(transport, what, expected);
  }

  Transport& transport;
  Mesh mesh;
  Group tp;
  Arena arena{std::int64_t{64} << 20};
  Kernels kernels{1, arena};
  CpuBackend backend{transport, arena, kernels};
  Rank rank;
};

inline void submitted_reductions_are_exact(Transport& transport) {
  CpuRank cpu{transport};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Buffer x = cpu.integers({10, 33}, dtype, transport.rank());
    all_reduce(cpu.rank, x.tensor(), cpu.tp, Lane::tp);
    cpu.expect(x.tensor(), "submitted all_reduce", [&](std::int64_t i) {
      double sum = 0;
      for (int rank = 0; rank < transport.size(); ++rank) sum += value_at(rank, i) / 4;
      return sum;
    });
  }
}

/// compute -> tp -> compute, chained by fences only, many times.
inline void fences_order_lanes(Transport& transport) {
  CpuRank cpu{transport};
  Rank& rank = cpu.rank;
  const Buffer x = rank.allocate({64, 64}, DType::f32, Category::activation);
  fill(rank, x.tensor(), 1.0F);
  double expected = 1;
  for (int step = 0; step < 8; ++step) {
    rank.order(Lane::compute, Lane::tp);
    all_reduce(rank, x.tensor(), cpu.tp, Lane::tp, Reduction::max);
    all_reduce(rank, x.tensor(), cpu.tp, Lane::tp);
    rank.order(Lane::tp, Lane::compute);
    add(rank, x.tensor(), x.tensor(), x.tensor());
    expected *= 2.0 * transport.size();
  }
  cpu.expect(x.tensor(), "a chain of fences", [&](std::int64_t) { return expected; });
}

/// Row blocks: the reduction of block i runs while block i + 1 is multiplied.
inline void overlap_blocks(Transport& transport, bool progress_thread) {
  CpuRank cpu{transport};
  cpu.backend.set_progress_thread(progress_thread);
  Rank& rank = cpu.rank;
  constexpr std::int64_t rows = 256;
  constexpr std::int64_t cols = 128;
  const Buffer x = cpu.integers({rows, cols}, DType::f32, transport.rank());
  const Buffer w = cpu.integers({cols, cols}, DType::f32, transport.rank() + 3);
  const Buffer whole = rank.allocate({rows, cols}, DType::f32, Category::activation);
  const Buffer blocks = rank.allocate({rows, cols}, DType::f32, Category::activation);
  matmul(rank, x.tensor(), w.tensor(), whole.tensor());
  rank.order(Lane::compute, Lane::tp);
  all_reduce(rank, whole.tensor(), cpu.tp, Lane::tp);
  constexpr std::int64_t block = 64;
  for (std::int64_t first = 0; first < rows; first += block) {
    matmul(rank, x.tensor().row_block(first, block), w.tensor(),
           blocks.tensor().row_block(first, block));
    const Lane lane = first / block % 2 == 0 ? Lane::tp : Lane::cp;
    rank.order(Lane::compute, lane);
    all_reduce(rank, blocks.tensor().row_block(first, block), cpu.tp, lane);
  }
  cpu.rank.synchronize();
  const auto* expected = whole.tensor().as<float>();
  cpu.expect(blocks.tensor(), "overlapped blocks",
             [&](std::int64_t i) { return static_cast<double>(expected[i]); });
}

inline void overlapped_blocks_equal_one_piece(Transport& transport) {
  overlap_blocks(transport, false);
}
inline void a_progress_thread_changes_no_result(Transport& transport) {
  if (transport.may_change_thread()) overlap_blocks(transport, true);
}

inline constexpr Check backend_checks[] = {
    {"submitted_reductions_are_exact", submitted_reductions_are_exact},
    {"fences_order_lanes", fences_order_lanes},
    {"overlapped_blocks_equal_one_piece", overlapped_blocks_equal_one_piece},
    {"a_progress_thread_changes_no_result", a_progress_thread_changes_no_result},
};

}  // namespace shardmark::conformance
