// shardmark-gpu-probe: what scripts/gpu_check asks of a GPU that rows of the programs do not say.
// Prints one line of JSON:
//   enqueue_us         host time to submit an op, median over batches of a thousand
//   cupti_over_events  kernel time by CUPTI over time by events, of long matrix products; null with
//                      cupti_missing, the reason, where there is no CUPTI

#include "core/cuda/rank_gpu.hpp"
#include "core/error.hpp"
#include "core/functions.hpp"
#include "core/launch.hpp"
#include "core/rank.hpp"
#include "profiler/cupti.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <vector>

namespace {

using namespace shardmark;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

Buffer filled(Rank& rank, const Shape& shape, DType dtype, float value) {
  Buffer buffer = rank.allocate(shape, dtype, Category::workspace);
  fill(rank, buffer.tensor(), value);
  return buffer;
}

/// Additions so small that the host is what takes time.
double enqueue_us(Rank& rank) {
  constexpr int batch = 1000, batches = 9;
  const Buffer x = filled(rank, {1024}, DType::f32, 0);
  std::vector<double> times_us;
  for (int i = 0; i <= batches; ++i) {
    rank.synchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int j = 0; j < batch; ++j) add(rank, x.tensor(), x.tensor(), x.tensor());
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    if (i > 0) times_us.push_back(time.count() / batch);
  }
  return median(times_us);
}

/// Adds up what products took, in microseconds.
struct Sum final : KernelSink {
  void on_kernel(const KernelRecord& kernel) override {
    us += static_cast<double>(kernel.end_ns - kernel.start_ns) / 1e3;
  }
  double us{0};
};

/// The same long products timed by events and by CUPTI, in turn; their clocks should not matter.
void compare_timers(Rank& rank, cuda::RankGpu& gpu, MeasuredBackend& backend,
                    nlohmann::ordered_json& found) {
  found["cupti_over_events"] = nullptr;
  constexpr std::int64_t n = 4096;
  constexpr int products = 10, rounds = 7;
  const Buffer a = filled(rank, {n, n}, DType::bf16, 0.5F),
               b = filled(rank, {n, n}, DType::bf16, 2), c = filled(rank, {n, n}, DType::bf16, 0);
  const auto time_us = [&](cuda::KernelTimer* timer) {
    Sum sum;
    gpu.set_kernel_timer(timer);
    backend.set_kernel_sink(&sum);
    for (int i = 0; i < products; ++i) matmul(rank, a.tensor(), b.tensor(), c.tensor());
    rank.synchronize();
    backend.set_kernel_sink(nullptr);
    gpu.set_kernel_timer(nullptr);
    return sum.us;
  };
  std::vector<double> ratios;
  for (int round = 0; round <= rounds; ++round) {
    const double events_us = time_us(nullptr);
    const CuptiStart cupti = start_cupti();
    if (cupti.timer == nullptr) {
      found["cupti_missing"] = cupti.missing;
      return;
    }
    const double cupti_us = time_us(cupti.timer.get());
    if (round > 0) ratios.push_back(cupti_us / events_us);
  }
  found["cupti_over_events"] = median(ratios);
}

void probe(Transport& transport) {
  const auto gpu = cuda::open_rank_gpu(transport, {.path = cuda::Path::staged});
  const auto backend = gpu->make_backend(transport);
  Rank rank{0, Mesh{{}}, *backend};
  nlohmann::ordered_json found{{"device", gpu->facts().name}, {"enqueue_us", enqueue_us(rank)}};
  compare_timers(rank, *gpu, *backend, found);
  std::cout << found.dump() << std::endl;
}

}  // namespace

int main() {
  return run_main([] {
    if (const std::string why = cuda::why_no_cuda(); !why.empty()) throw InputError{why};
    run_threads(1, probe);
    return 0;
  });
}
