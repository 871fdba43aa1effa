#include "bench/micro/device.hpp"

namespace shardmark::micro {
namespace {

enum class Pass { forward, backward, both };

/// Causal attention of one sequence on one thread. FLOPs are those of unmasked pairs; the backward
/// pass counts as executed (2.5 times the forward, for it recomputes the probabilities), in `both`
/// as twice the forward. `scratch_MiB` is what a kernel takes besides the tensors.
void attention(benchmark::State& state, DType dtype, Pass pass) {
  const AttentionShape shape{1,   state.range(0), state.range(1), state.range(1), state.range(2),
                             true};
  const std::int64_t cols = shape.heads * shape.head_dim;
  Device device;
  const auto activation = [&] { return device.tensor(shape.seq, cols, dtype); };
  const Attention forward{activation(),
                          activation(),
                          activation(),
                          activation(),
                          device.tensor(shape.heads, shape.seq, DType::f32),
                          shape};
  const AttentionBackward backward{forward.q,    forward.k,    forward.v,    forward.o,
                                   forward.lse,  activation(), activation(), activation(),
                                   activation(), shape};
  if (pass == Pass::backward) device.run(forward);
  const double flops = pass == Pass::forward    ? flops_of(forward)
                       : pass == Pass::backward ? flops_of(backward)
                                                : 3 * flops_of(forward);
  measure_flops(state, device, dtype, flops, [&] {
    if (pass != Pass::backward) device.run(forward);
    if (pass != Pass::forward) device.run(backward);
  });
  const std::int64_t scratch = std::max(pass == Pass::backward ? 0 : workspace_bytes(forward, 1),
                                        pass == Pass::forward ? 0 : workspace_bytes(backward, 1));
  state.counters["scratch_MiB"] = static_cast<double>(scratch) / (1 << 20);
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"seq", "heads", "head_dim"});
  for (const auto& [seq, heads] : {std::pair{512, 8}, {1024, 8}, {4096, 2}})
    bench->Args({seq, heads, 128});
  bench->UseManualTime()->Iterations(5)->Unit(benchmark::kMillisecond);
}
void long_sequences(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"seq", "heads", "head_dim"})->Args({8192, 16, 128});
  bench->UseManualTime()->Iterations(5)->Unit(benchmark::kMillisecond);
}
/// A minute for both passes.
void longest_sequences(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"seq", "heads", "head_dim"})->Args({65536, 4, 64});
  bench->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
}

BENCHMARK_CAPTURE(attention, f32_forward, DType::f32, Pass::forward)->Apply(shapes);
BENCHMARK_CAPTURE(attention, f32_backward, DType::f32, Pass::backward)->Apply(shapes);
BENCHMARK_CAPTURE(attention, bf16_forward, DType::bf16, Pass::forward)->Apply(shapes);
BENCHMARK_CAPTURE(attention, bf16_backward, DType::bf16, Pass::backward)->Apply(shapes);
BENCHMARK_CAPTURE(attention, f32_forward, DType::f32, Pass::forward)->Apply(long_sequences);
BENCHMARK_CAPTURE(attention, f32_both, DType::f32, Pass::both)->Apply(long_sequences);
BENCHMARK_CAPTURE(attention, bf16_both, DType::bf16, Pass::both)->Apply(long_sequences);
BENCHMARK_CAPTURE(attention, f32_both, DType::f32, Pass::both)->Apply(longest_sequences);
BENCHMARK_CAPTURE(attention, bf16_both, DType::bf16, Pass::both)->Apply(longest_sequences);

}  // namespace
}  // namespace shardmark::micro
