#include "core/cuda/gpu.hpp"

#include "core/cpu/transport_threads.hpp"
#include "core/cuda/backend.hpp"
#include "core/cuda/check.cuh"
#include "core/cuda/kernels/launch.hpp"
#include "core/error.hpp"
#include "core/functions.hpp"
#include "tests/cuda/compare.hpp"

#include <gmock/gmock.h>

#include <vector>

namespace shardmark::cuda {
namespace {

TEST(Gpu, WithoutOneTheReasonIsGiven) {
  if (why_no_gpu().empty()) GTEST_SKIP() << "there is a GPU";
  EXPECT_THAT(why_no_gpu(), testing::HasSubstr("no GPU can be used"));
  EXPECT_THROW((void)open_gpu(), InputError);
}

TEST(Gpu, AKernelThatCannotBeStartedIsNamed) {
  if (why_no_gpu().empty()) GTEST_SKIP() << "there is a GPU";
  const View x{};
  const Kernel kernel = CastKernel{{1, 1}, x, x};
  try {
    start(kernel, launch_of(kernel, 1), nullptr);
    FAIL() << "started without a GPU";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("shardmark_cast"));
  }
}

TEST(Gpu, OneThatIsNotThereIsNamed) {
  if (!why_no_gpu().empty()) GTEST_SKIP() << why_no_gpu();
  EXPECT_THAT(why_no_gpu(1000), testing::HasSubstr("GPU 1000"));
}

/// The smallest program that uses cuBLASLt, a kernel, a copy and two streams.
TEST(Gpu, AProgramGivesTheRightNumbers) {
  if (!why_no_gpu().empty()) GTEST_SKIP() << why_no_gpu();
  const auto device = open_gpu();
  ThreadWorld world{1};
  ThreadTransport transport{world, 0};
  CudaBackend backend{*device, transport, {}};
  Rank rank{0, Mesh{{}}, backend};
  constexpr std::int64_t n = 64;
  const auto make = [&] { return rank.allocate({n, n}, DType::f32, Category::activation); };
  const Buffer x = make(), w = make(), y = make(), copied = make();
  const std::vector<float> ones(static_cast<std::size_t>(n * n), 1.0F);
  backend.write(x.tensor(), ones.data());
  backend.write(w.tensor(), ones.data());
  matmul(rank, x.tensor(), w.tensor(), y.tensor());
  rank.order(Lane::compute, Lane::copy);
  rank.submit(Copy{y.tensor(), copied.tensor()}, Lane::copy);
  rank.order(Lane::copy, Lane::compute);
  add(rank, copied.tensor(), y.tensor(), copied.tensor());
  std::vector<float> result(ones.size());
  backend.read(copied.tensor(), result.data());
  EXPECT_THAT(result, testing::Each(2.0F * n));
}

/// Memory that host and GPU both see.
class Managed {
 public:
  explicit Managed(std::int64_t bytes) {
    SHARDMARK_CUDA(cudaMallocManaged(&data_, static_cast<std::size_t>(bytes)));
  }
  Managed(const Managed&) = delete;
  Managed& operator=(const Managed&) = delete;
  ~Managed() { SHARDMARK_CUDA_NOEXCEPT(cudaFree(data_)); }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_{nullptr};
};

/// What the tests of the descriptions run on the host, run by the libraries and the device.
TEST(Gpu, EveryComputeOpIsTheReferences) {
  if (!why_no_gpu().empty()) GTEST_SKIP() << why_no_gpu();
  const auto device = open_gpu();
  const Managed memory{Pool::capacity};
  Pool pool{memory.data()};
  const auto run = [&](const Translation& translation) {
    for (const Call& call : translation.calls) device->run(call, Lane::compute);
    device->synchronize();
  };
  for (const MakeOps& make_ops : all_examples()) compare_with_reference(pool, make_ops, run);
}

}  // namespace
}  // namespace shardmark::cuda
