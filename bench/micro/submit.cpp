// What one op costs between the layer that submits it and the executor that drops it: everything
// but its work. Half of the ops are the largest there is, which a filter drops where the executor
// would run it; the others are fences, which do nothing when their turn comes.

#include "core/adaptors.hpp"
#include "core/cpu/arena.hpp"
#include "core/cpu/backend.hpp"
#include "core/cpu/kernels.hpp"
#include "core/cpu/transport_threads.hpp"
#include "core/rank.hpp"

#include <benchmark/benchmark.h>

#include <array>

namespace shardmark::micro {
namespace {

constexpr int ops_per_batch = 256;

struct Machine {
  ThreadWorld world{1};
  ThreadTransport transport{world, 0};
  Arena arena{1 << 21};
  Kernels kernels{1, arena};
  CpuBackend backend{transport, arena, kernels};
  FilterBackend filter{backend, OpKind::communication};
  Mesh mesh{{}};
};

void submit_batch(Rank& rank) {
  for (int i = 0; i < ops_per_batch / 4; ++i) {
    rank.submit(AttentionBackward{}, Lane::compute);
    rank.submit(AttentionBackward{}, Lane::compute);
    rank.await(rank.signal(Lane::compute), Lane::tp);
  }
}

/// Seconds per op, whatever the batch size.
void count_ops(benchmark::State& state) {
  state.counters["per_op"] = benchmark::Counter{
      ops_per_batch, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert};
}

void submit(benchmark::State& state) {
  Machine machine;
  Rank rank{0, machine.mesh, machine.filter};
  for (auto _ : state) {
    submit_batch(rank);
    rank.synchronize();
  }
  count_ops(state);
}

void submit_recording(benchmark::State& state) {
  Machine machine;
  OpList list;
  list.ops.reserve(ops_per_batch);
  Rank rank{0, machine.mesh, machine.filter, &list};
  const auto scope = rank.scope("step");
  for (auto _ : state) {
    submit_batch(rank);
    rank.synchronize();
    list.ops.clear();
  }
  count_ops(state);
}

/// What counting adds to a call: the bytes of its op, added up.
void count_bytes(benchmark::State& state) {
  constexpr std::int64_t numel = (1 << 20) / 4;
  const Tensor x{1, DType::f32, Shape{numel}, 0, numel, nullptr};
  const Tensor block{2, DType::f32, Shape{numel / 2}, 0, numel / 2, nullptr};
  const Group pair{Axis::tp, 0, 1, 2, 0};
  const std::array<Op, 4> ops{
      AllReduce{.x = x, .group = pair}, AllGather{.x = block, .y = x, .group = pair},
      ReduceScatter{.x = x, .y = block, .group = pair}, AllToAll{.x = x, .y = x, .group = pair}};
  double bytes = 0;
  for (auto _ : state) {
    for (const Op& op : ops) bytes += bytes_sent_of(op);
    benchmark::DoNotOptimize(bytes);
  }
  state.counters["per_call"] = benchmark::Counter{
      ops.size(), benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert};
}

BENCHMARK(submit);
BENCHMARK(count_bytes);
BENCHMARK(submit_recording);

}  // namespace
}  // namespace shardmark::micro
