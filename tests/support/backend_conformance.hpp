#pragma once

// Rank and a backend on top of a transport: submission, lanes, fences. Run like the checks of
// transport_conformance.hpp, on threads and on MPI.

#include "core/cpu/backend.hpp"
#include "core/functions.hpp"
#include "core/rank.hpp"
#include "tests/support/transport_conformance.hpp"

namespace shardmark::conformance {

/// The executor on the CPU with what it needs.
struct CpuDevice {
  explicit CpuDevice(Transport& transport) : backend{transport, arena, kernels} {}
  Arena arena{std::int64_t{64} << 20};
  Kernels kernels{1, arena};
  CpuBackend backend;
};

/// Everything a rank of a tp-only mesh needs. A Device is made from a transport and has a
/// `backend`.
template <class Device>
struct RankOn {
  explicit RankOn(Transport& its_transport)
      : transport{its_transport},
        mesh{{.tp = transport.size()}},
        tp{mesh.group(transport.rank(), Axis::tp)},
        device{transport},
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
  Device device;
  decltype(Device::backend)& backend{device.backend};
  Rank rank;
};
using CpuRank = RankOn<CpuDevice>;

template <class OneRank>
void submitted_reductions_are_exact(Transport& transport) {
  OneRank cpu{transport};
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
template <class OneRank>
void fences_order_lanes(Transport& transport) {
  OneRank cpu{transport};
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
template <class OneRank>
void overlap_blocks(Transport& transport, bool progress_thread) {
  OneRank cpu{transport};
  if constexpr (requires { cpu.backend.set_progress_thread(progress_thread); })
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

template <class OneRank>
void overlapped_blocks_equal_one_piece(Transport& transport) {
  overlap_blocks<OneRank>(transport, false);
}
template <class OneRank>
void a_progress_thread_changes_no_result(Transport& transport) {
  if (transport.may_change_thread()) overlap_blocks<OneRank>(transport, true);
}

/// A pipeline with `chunks` stages on each rank, in the order of 1F1B or, with several, all
/// forwards first. Stage s adds s + 1 to what comes forward and to what comes back; the last one
/// sends back what has arrived. Only fences order the lanes.
template <class OneRank>
class Pipeline {
 public:
  Pipeline(Transport& transport, int chunks)
      : cpu_{transport}, chunks_{chunks}, num_micro_{2 * cpu_.tp.size} {
    for (const Lane lane :
         {Lane::pp_fwd_send, Lane::pp_fwd_recv, Lane::pp_bwd_send, Lane::pp_bwd_recv})
      transport.connect(cpu_.tp, lane);
    for (int pass = 0; pass < num_passes(); ++pass)
      for (std::vector<Buffer>* buffers : {&x_, &y_, &dy_, &dx_})
        buffers->push_back(allocate(1 + pass % num_micro_));
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      biases_.push_back(allocate(1));
      fill(cpu_.rank, biases_.back().tensor(), static_cast<float>(stage(chunk) + 1));
    }
  }
  void run() {
    const int warm_up = chunks_ > 1 ? num_passes() : cpu_.tp.size - 1 - cpu_.tp.position;
    for (int done = 0; done < num_passes() + warm_up; ++done) {
      if (done < num_passes()) forward(done / num_micro_, done % num_micro_);
      const int back = done - warm_up;
      if (back >= 0) backward(chunks_ - 1 - back / num_micro_, back % num_micro_);
    }
  }
  void check() {
    const int last = chunks_ * cpu_.tp.size - 1;
    const auto sum = [](int from, int to) { return (to + from + 2) * (to - from + 1) / 2; };
    for (int chunk = 0; chunk < chunks_; ++chunk)
      for (int micro = 0; micro < num_micro_; ++micro) {
        const int s = stage(chunk);
        const auto expect = [&](const std::vector<Buffer>& buffers, const char* what, int value) {
          cpu_.expect(at(buffers, chunk, micro),
                      message(what, " of stage ", s, ", micro-batch ", micro),
                      [&](std::int64_t) { return value; });
        };
        expect(y_, "output", micro + sum(0, s));
        expect(dx_, "gradient", micro + sum(0, last) + sum(s, last));
      }
  }

 private:
  [[nodiscard]] int num_passes() const { return chunks_ * num_micro_; }
  [[nodiscard]] int stage(int chunk) const { return chunk * cpu_.tp.size + cpu_.tp.position; }
  [[nodiscard]] Buffer allocate(int rows) {
    return cpu_.rank.allocate({rows, 700}, DType::f32, Category::activation);
  }
  [[nodiscard]] Tensor at(const std::vector<Buffer>& buffers, int chunk, int micro) const {
    return buffers[static_cast<std::size_t>(chunk * num_micro_ + micro)].tensor();
  }
  [[nodiscard]] Tensor bias(int chunk) const {
    return biases_[static_cast<std::size_t>(chunk)].tensor();
  }
  void forward(int chunk, int micro) {
    const Tensor x = at(x_, chunk, micro), y = at(y_, chunk, micro);
    if (stage(chunk) == 0)
      fill(cpu_.rank, x, static_cast<float>(micro));
    else
      receive(x, -1, Lane::pp_fwd_recv);
    add_bias(cpu_.rank, x, bias(chunk), y);
    if (stage(chunk) + 1 < chunks_ * cpu_.tp.size) send(y, 1, Lane::pp_fwd_send);
  }
  void backward(int chunk, int micro) {
    const Tensor dy = at(dy_, chunk, micro), dx = at(dx_, chunk, micro);
    if (stage(chunk) + 1 == chunks_ * cpu_.tp.size)
      copy(cpu_.rank, at(y_, chunk, micro), dy);
    else
      receive(dy, 1, Lane::pp_bwd_recv);
    add_bias(cpu_.rank, dy, bias(chunk), dx);
    if (stage(chunk) > 0) send(dx, -1, Lane::pp_bwd_send);
  }
  [[nodiscard]] int neighbour(int distance) const {
    return (cpu_.tp.position + distance + cpu_.tp.size) % cpu_.tp.size;
  }
  void receive(const Tensor& tensor, int distance, Lane lane) {
    send_recv(cpu_.rank, {}, -1, tensor, neighbour(distance), cpu_.tp, lane);
    cpu_.rank.order(lane, Lane::compute);
  }
  void send(const Tensor& tensor, int distance, Lane lane) {
    cpu_.rank.order(Lane::compute, lane);
    send_recv(cpu_.rank, tensor, neighbour(distance), {}, -1, cpu_.tp, lane);
  }

  OneRank cpu_;
  int chunks_, num_micro_;
  std::vector<Buffer> x_, y_, dy_, dx_;  ///< [chunk * num_micro + micro]
  std::vector<Buffer> biases_;           ///< by chunk
};

template <class OneRank>
void run_pipeline(Transport& transport, int chunks) {
  if (transport.size() == 1) return;
  Pipeline<OneRank> pipeline{transport, chunks};
  pipeline.run();
  pipeline.check();
}
template <class OneRank>
void stages_pass_micro_batches_on(Transport& transport) {
  run_pipeline<OneRank>(transport, 1);
}
template <class OneRank>
void chunks_pass_micro_batches_round(Transport& transport) {
  run_pipeline<OneRank>(transport, 2);
}

template <class OneRank>
inline constexpr Check backend_checks_of[] = {
    {"submitted_reductions_are_exact", submitted_reductions_are_exact<OneRank>},
    {"fences_order_lanes", fences_order_lanes<OneRank>},
    {"overlapped_blocks_equal_one_piece", overlapped_blocks_equal_one_piece<OneRank>},
    {"a_progress_thread_changes_no_result", a_progress_thread_changes_no_result<OneRank>},
    {"stages_pass_micro_batches_on", stages_pass_micro_batches_on<OneRank>},
    {"chunks_pass_micro_batches_round", chunks_pass_micro_batches_round<OneRank>},
};
inline constexpr std::span<const Check> backend_checks{backend_checks_of<CpuRank>};

}  // namespace shardmark::conformance
