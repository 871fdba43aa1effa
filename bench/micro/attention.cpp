#include "bench/micro/device.hpp"

namespace shardmark::micro {
namespace {

/// Causal attention of one sequence; FLOPs as executed (backward recomputes the probabilities).
void attention(benchmark::State& state, DType dtype, bool backward) {
  const AttentionShape shape{1, state.range(0), state.range(1), state.range(1), 128, true};
  const std::int64_t cols = shape.heads * shape.head_dim;
  Device device;
  const auto activation = [&] { return device.tensor(shape.seq, cols, dtype); };
  const Attention forward{activation(),
                          activation(),
                          activation(),
                          activation(),
                          device.tensor(shape.heads, shape.seq, DType::f32),
                          shape};
  device.run(forward);
  if (!backward) {
    measure_flops(state, device, dtype, flops_of(forward), [&] { device.run(forward); });
    return;
  }
  const AttentionBackward op{forward.q,    forward.k,    forward.v,    forward.o,    forward.lse,
                             activation(), activation(), activation(), activation(), shape};
  device.run(op);
  measure_flops(state, device, dtype, flops_of(op), [&] { device.run(op); });
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"seq", "heads"});
  for (const auto& [seq, heads] : {std::pair{512, 8}, {1024, 8}, {4096, 2}})
    bench->Args({seq, heads});
  bench->UseManualTime()->Iterations(5)->Unit(benchmark::kMillisecond);
}

BENCHMARK_CAPTURE(attention, f32_forward, DType::f32, false)->Apply(shapes);
BENCHMARK_CAPTURE(attention, f32_backward, DType::f32, true)->Apply(shapes);
BENCHMARK_CAPTURE(attention, bf16_forward, DType::bf16, false)->Apply(shapes);
BENCHMARK_CAPTURE(attention, bf16_backward, DType::bf16, true)->Apply(shapes);

}  // namespace
}  // namespace shardmark::micro
