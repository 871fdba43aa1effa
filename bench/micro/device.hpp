#pragma once

#include "core/bf16.hpp"
#include "core/cpu/arena.hpp"
#include "core/cpu/gemm_probe.hpp"
#include "core/cpu/kernels.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

namespace shardmark::micro {

class NoTiles final : public TileHook {
 public:
  [[nodiscard]] bool wants_tiles() const override { return false; }
  void between_tiles() override {}
};

/// Kernels on one thread and tensors of random data for them.
class Device {
 public:
  Tensor tensor(std::int64_t rows, std::int64_t cols, DType dtype) {
    Tensor made{++num_buffers_, dtype, {rows, cols}, 0, cols, nullptr};
    made.data = arena_.allocate(made.bytes());
    std::uniform_real_distribution<float> uniform{-1.0F, 1.0F};
    for (std::int64_t i = 0; i < made.numel(); ++i) {
      if (dtype == DType::f32)
        made.as<float>()[i] = uniform(random_);
      else
        made.as<std::uint16_t>()[i] = to_bf16(uniform(random_));
    }
    return made;
  }
  void run(const Op& op) { benchmark::DoNotOptimize(kernels_.run(op, hook_)); }
  [[nodiscard]] Arena& arena() { return arena_; }

 private:
  Arena arena_{std::int64_t{4} << 30};
  Kernels kernels_{1, arena_};
  NoTiles hook_;
  std::minstd_rand random_{1};
  std::uint32_t num_buffers_{0};
};

/// Reports GFLOP/s and the share of the matmul peak, which is probed before and after each
/// iteration because the speed of the machine drifts; the better of the two counts.
template <class Call>
void measure_flops(benchmark::State& state, Device& device, DType dtype, double flops,
                   const Call& call) {
  GemmProbe probe{dtype, 1, device.arena()};
  using Clock = std::chrono::steady_clock;
  const auto probed_flops = [&] {
    return 1e12 * std::max(probe.run_tflops(GemmProbe::Layout::packed),
                           probe.run_tflops(GemmProbe::Layout::packed));
  };
  std::vector<double> shares;
  double before = probed_flops();
  double total_s = 0;
  for (auto _ : state) {
    const auto begin = Clock::now();
    call();
    const double time_s = std::chrono::duration<double>(Clock::now() - begin).count();
    state.SetIterationTime(time_s);
    total_s += time_s;
    const double after = probed_flops();
    shares.push_back(flops / time_s / std::max(before, after));
    before = after;
  }
  state.counters["GFLOP/s"] = flops * static_cast<double>(state.iterations()) / total_s / 1e9;
  std::ranges::sort(shares);
  state.counters["median_pct_of_peak"] = 100 * shares[shares.size() / 2];
}

}  // namespace shardmark::micro
