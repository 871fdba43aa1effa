#include "core/cuda/probe.hpp"

#include "core/bf16.hpp"
#include "core/cuda/check.cuh"
#include "core/cuda/matmul_library.cuh"
#include "core/cuda/probe_shapes.hpp"
#include "core/f16.hpp"

#include <algorithm>
#include <random>
#include <vector>

namespace shardmark::cuda {
namespace {

constexpr double sample_s = 0.004;  ///< at least: an event's time has half a microsecond
constexpr int num_samples = 5;
constexpr double budget_s = 2.0;

/// Memory that is not part of any pool.
class Block {
 public:
  explicit Block(std::int64_t bytes) {
    SHARDMARK_CUDA(cudaMalloc(&data_, static_cast<std::size_t>(bytes)));
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { SHARDMARK_CUDA_NOEXCEPT(cudaFree(data_)); }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_{nullptr};
};

class Stream {
 public:
  Stream() {
    SHARDMARK_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    SHARDMARK_CUDA(cudaEventCreate(&begin_));
    SHARDMARK_CUDA(cudaEventCreate(&end_));
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    SHARDMARK_CUDA_NOEXCEPT(cudaEventDestroy(end_));
    SHARDMARK_CUDA_NOEXCEPT(cudaEventDestroy(begin_));
    SHARDMARK_CUDA_NOEXCEPT(cudaStreamDestroy(stream_));
  }
  [[nodiscard]] cudaStream_t get() const { return stream_; }
  /// Seconds on the device that `count` calls of `enqueue` take together.
  template <class Enqueue>
  double time(int count, const Enqueue& enqueue) {
    SHARDMARK_CUDA(cudaEventRecord(begin_, stream_));
    for (int i = 0; i < count; ++i) enqueue();
    SHARDMARK_CUDA(cudaEventRecord(end_, stream_));
    SHARDMARK_CUDA(cudaEventSynchronize(end_));
    float ms = 0;
    SHARDMARK_CUDA(cudaEventElapsedTime(&ms, begin_, end_));
    return static_cast<double>(ms) * 1e-3;
  }

 private:
  cudaStream_t stream_{nullptr};
  cudaEvent_t begin_{nullptr}, end_{nullptr};
};

/// Normal numbers, never zero in effect: a period of random ones, repeated by copies that double.
/// The period divides no matrix, so that rows differ.
void fill_with_random(std::byte* data, std::int64_t bytes, DType dtype, unsigned seed) {
  constexpr std::size_t period = 4'194'301;
  std::mt19937 generator{seed};
  std::normal_distribution<float> distribution;
  std::vector<float> values(period);
  for (float& value : values) value = distribution(generator);
  std::vector<std::uint16_t> halves;
  if (dtype == DType::bf16)
    for (const float value : values) halves.push_back(to_bf16(value));
  if (dtype == DType::f16)
    for (const float value : values) halves.push_back(to_f16(value));
  const void* const from = halves.empty() ? static_cast<const void*>(values.data()) : halves.data();
  const auto total = static_cast<std::size_t>(bytes);
  std::size_t done = std::min(total, period * static_cast<std::size_t>(size_of(dtype)));
  SHARDMARK_CUDA(cudaMemcpy(data, from, done, cudaMemcpyHostToDevice));
  for (std::size_t count = 0; done < total; done += count) {
    count = std::min(done, total - done);
    SHARDMARK_CUDA(cudaMemcpy(data + done, data, count, cudaMemcpyDeviceToDevice));
  }
  SHARDMARK_CUDA(cudaDeviceSynchronize());
}

MatmulCall call_of(const ProbeShape& s, DType dtype, bool allow_tf32, std::byte* a, std::byte* b,
                   std::byte* d) {
  MatmulCall call;
  call.a = {a, dtype, s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k,
            s.transpose_a ? s.k : s.m};
  call.b = {b, dtype, s.k, s.n, s.k};
  call.d = {d, dtype, s.m, s.n, s.m};
  call.transpose_a = s.transpose_a;
  call.fast_tf32 = allow_tf32 && dtype == DType::f32;
  return call;
}

}  // namespace

double measure_matmul_tflops(DType dtype, bool allow_tf32) {
  int device = 0, major = 0;
  SHARDMARK_CUDA(cudaGetDevice(&device));
  SHARDMARK_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  MatmulLibrary library{major};
  std::size_t free_bytes = 0, total_bytes = 0;
  SHARDMARK_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  const auto usable = static_cast<std::int64_t>(free_bytes) - library.workspace_bytes();
  const std::vector<ProbeShape> shapes = probe_shapes(dtype, usable);
  SHARDMARK_CHECK(!shapes.empty(), "no matmul of a peak's size fits into ", free_bytes,
                  " bytes of free memory");
  std::int64_t a_bytes = 0, b_bytes = 0, d_bytes = 0;
  for (const ProbeShape& s : shapes) {
    a_bytes = std::max(a_bytes, s.m * s.k * size_of(dtype));
    b_bytes = std::max(b_bytes, s.k * s.n * size_of(dtype));
    d_bytes = std::max(d_bytes, s.m * s.n * size_of(dtype));
  }
  const Block a{a_bytes}, b{b_bytes}, d{d_bytes}, workspace{library.workspace_bytes()};
  fill_with_random(a.data(), a_bytes, dtype, 1);
  fill_with_random(b.data(), b_bytes, dtype, 2);
  Stream stream;
  double best = 0, spent_s = 0;
  for (const ProbeShape& shape : shapes) {
    const MatmulCall call = call_of(shape, dtype, allow_tf32, a.data(), b.data(), d.data());
    const auto run = [&] { library.run(call, workspace.data(), stream.get()); };
    (void)stream.time(1, run);  // chooses an algorithm and loads its code
    const double once_s = stream.time(1, run);
    const int count = 1 + static_cast<int>(sample_s / std::max(once_s, 1e-6));
    std::vector<double> samples;
    for (int i = 0; i < num_samples; ++i) samples.push_back(stream.time(count, run) / count);
    best = std::max(best, flops_of(shape) / median_of(samples) * 1e-12);
    spent_s += once_s * (2 + num_samples * count);
    if (spent_s > budget_s) break;
  }
  return best;
}

CacheFlusher::CacheFlusher() {
  int device = 0, cache_bytes = 0;
  SHARDMARK_CUDA(cudaGetDevice(&device));
  SHARDMARK_CUDA(cudaDeviceGetAttribute(&cache_bytes, cudaDevAttrL2CacheSize, device));
  bytes_ = 2 * static_cast<std::size_t>(cache_bytes);
  SHARDMARK_CUDA(cudaMalloc(&data_, std::max<std::size_t>(bytes_, 1)));
}

CacheFlusher::~CacheFlusher() { SHARDMARK_CUDA_NOEXCEPT(cudaFree(data_)); }

void CacheFlusher::flush() {
  SHARDMARK_CUDA(cudaMemsetAsync(data_, 0x5A, bytes_, cudaStreamPerThread));
  SHARDMARK_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
}

}  // namespace shardmark::cuda
