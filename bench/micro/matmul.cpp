// Matmul by shape: through Kernels (packing inside the call), and oneDNN alone with plain and with
// prepacked weights, which GemmProbe also calls.

#include "bench/micro/device.hpp"

namespace shardmark::micro {
namespace {

enum class Form : std::uint8_t { forward, input_gradient, weight_gradient };

/// The three products of a linear layer of `tokens` rows, k inputs and n outputs.
void linear(benchmark::State& state, DType dtype, Form form) {
  const std::int64_t tokens = state.range(0);
  const std::int64_t k = state.range(1);
  const std::int64_t n = state.range(2);
  Device device;
  const Tensor x = device.tensor(tokens, k, dtype);
  const Tensor w = device.tensor(k, n, dtype);
  const Tensor y = device.tensor(tokens, n, dtype);
  Matmul op;
  switch (form) {
    case Form::forward:
      op = {.a = x, .b = w, .c = y};
      break;
    case Form::input_gradient:
      op = {.a = y, .b = w, .c = x, .transpose_b = true};
      break;
    case Form::weight_gradient:
      op = {.a = x, .b = y, .c = device.tensor(k, n, DType::f32), .transpose_a = true};
      break;
  }
  device.run(op);
  measure_flops(state, device, dtype, flops_of(op), [&] { device.run(op); });
}

/// oneDNN alone at 2048^3.
void library(benchmark::State& state, DType dtype, GemmProbe::Layout layout) {
  Device device;
  GemmProbe probe{dtype, 1, device.arena()};
  double best = 0;
  for (auto _ : state) {
    const double tflops = probe.run_tflops(layout);
    state.SetIterationTime(2.0 * 2048 * 2048 * 2048 / (tflops * 1e12));
    best = std::max(best, tflops);
  }
  state.counters["GFLOP/s"] = best * 1e3;
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"tokens", "k", "n"});
  for (const std::int64_t tokens : {128, 1024})
    for (const auto& [k, n] : {std::pair{2048, 2048}, {2048, 8192}, {8192, 2048}})
      bench->Args({tokens, k, n});
  bench->UseManualTime()->Iterations(5)->Unit(benchmark::kMillisecond);
}

BENCHMARK_CAPTURE(linear, f32_forward, DType::f32, Form::forward)->Apply(shapes);
BENCHMARK_CAPTURE(linear, f32_input_gradient, DType::f32, Form::input_gradient)->Apply(shapes);
BENCHMARK_CAPTURE(linear, f32_weight_gradient, DType::f32, Form::weight_gradient)->Apply(shapes);
BENCHMARK_CAPTURE(linear, bf16_forward, DType::bf16, Form::forward)->Apply(shapes);
BENCHMARK_CAPTURE(linear, bf16_weight_gradient, DType::bf16, Form::weight_gradient)->Apply(shapes);
BENCHMARK_CAPTURE(library, f32_plain, DType::f32, GemmProbe::Layout::plain)
    ->UseManualTime()
    ->Iterations(5)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(library, f32_packed, DType::f32, GemmProbe::Layout::packed)
    ->UseManualTime()
    ->Iterations(5)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace shardmark::micro
