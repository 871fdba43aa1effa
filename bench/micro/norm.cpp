// Norms and activations: bound by memory, so the figure to look at is bytes per second.

#include "bench/micro/device.hpp"

namespace shardmark::micro {
namespace {

constexpr std::int64_t rows = 1024;
constexpr std::int64_t cols = 4096;

void run(benchmark::State& state, Device& device, const Op& op) {
  device.run(op);
  for (auto _ : state) device.run(op);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(work(op).bytes_memory));
}

void norm(benchmark::State& state, DType dtype, NormKind kind, bool backward) {
  Device device;
  const Tensor x = device.tensor(rows, cols, dtype);
  const Tensor gain = device.tensor(1, cols, dtype);
  const Tensor bias = kind == NormKind::layer ? device.tensor(1, cols, dtype) : Tensor{};
  const Tensor stats = device.tensor(rows, 2, DType::f32);
  const Norm forward{x, gain, bias, device.tensor(rows, cols, dtype), stats, kind};
  device.run(forward);
  if (!backward) return run(state, device, forward);
  const Tensor dbias = bias ? device.tensor(1, cols, DType::f32) : Tensor{};
  run(state, device,
      NormBackward{x, gain, stats, forward.y, device.tensor(rows, cols, dtype),
                   device.tensor(1, cols, DType::f32), dbias, kind});
}

void gelu(benchmark::State& state, DType dtype, GeluKind kind, bool backward) {
  Device device;
  const Tensor x = device.tensor(rows, cols, dtype);
  const Tensor y = device.tensor(rows, cols, dtype);
  if (backward)
    run(state, device, GeluBackward{x, y, device.tensor(rows, cols, dtype), kind});
  else
    run(state, device, Gelu{x, y, kind});
}

void swiglu(benchmark::State& state, DType dtype) {
  Device device;
  run(state, device,
      SwiGlu{device.tensor(rows, cols, dtype), device.tensor(rows, cols, dtype),
             device.tensor(rows, cols, dtype)});
}

BENCHMARK_CAPTURE(norm, f32_layer_forward, DType::f32, NormKind::layer, false);
BENCHMARK_CAPTURE(norm, f32_layer_backward, DType::f32, NormKind::layer, true);
BENCHMARK_CAPTURE(norm, f32_rms_forward, DType::f32, NormKind::rms, false);
BENCHMARK_CAPTURE(norm, bf16_rms_forward, DType::bf16, NormKind::rms, false);
BENCHMARK_CAPTURE(gelu, f32_erf_forward, DType::f32, GeluKind::erf, false);
BENCHMARK_CAPTURE(gelu, f32_erf_backward, DType::f32, GeluKind::erf, true);
BENCHMARK_CAPTURE(gelu, f32_tanh_forward, DType::f32, GeluKind::tanh, false);
BENCHMARK_CAPTURE(swiglu, f32, DType::f32);

}  // namespace
}  // namespace shardmark::micro
