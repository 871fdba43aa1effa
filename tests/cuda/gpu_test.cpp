#include "core/cuda/gpu.hpp"

#include "core/cpu/transport_threads.hpp"
#include "core/cuda/attention_library.cuh"
#include "core/cuda/backend.hpp"
#include "core/cuda/check.cuh"
#include "core/cuda/kernels/launch.hpp"
#include "core/cuda/matmul_library.cuh"
#include "core/error.hpp"
#include "core/functions.hpp"
#include "tests/cuda/compare.hpp"

#include <gmock/gmock.h>

#include <string>
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

TEST(Gpu, WorkspacesAreAsTheManualAdvises) {
  constexpr std::int64_t mebibyte = std::int64_t{1} << 20;
  EXPECT_EQ(advised_workspace_bytes(8), 4 * mebibyte);
  EXPECT_EQ(advised_workspace_bytes(9), 32 * mebibyte);
  EXPECT_EQ(advised_workspace_bytes(10), 32 * mebibyte);
  EXPECT_EQ(advised_workspace_bytes(12), 12 * mebibyte);
}

TEST(Gpu, WithoutOneOrWithoutCudnnFusedAttentionSaysWhy) {
  if (why_no_gpu().empty()) GTEST_SKIP() << "there is a GPU";
  AttentionLibrary library;
  EXPECT_NE(library.support().why_not, "");
  EXPECT_EQ(library.support(FusedAttention{}).why_not, library.support().why_not);
  EXPECT_THROW(library.run(FusedAttention{}, nullptr, nullptr), Error);
}

/// Attentions of a sequence, and the bands that a ring makes of one.
std::vector<FusedAttention> attentions() {
  std::vector<FusedAttention> calls;
  Pool pool;
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const std::int64_t window : {0, 64})
      for (const bool causal : {true, false})
        for (const std::int64_t first_key : {0, 128}) {
          pool.clear();
          AttentionShape shape{.batch = 1, .seq = 256, .heads = 4, .kv_heads = 2, .head_dim = 64};
          shape.causal = causal;
          shape.window = window;
          shape.queries = {{Places::Run{128, 256, 1}, Places::Run{}}};
          shape.keys = {{Places::Run{first_key, 256, 1}, Places::Run{}}};
          const Tensor q = pool.empty({256, 256}, dtype), k = pool.empty({256, 128}, dtype);
          const Tensor lse = pool.empty({1, 4, 256}, DType::f32);
          const Attention forward{q, k, k, q, lse, shape};
          const AttentionBackward backward{q, k, k, q, lse, q, q, k, k, shape};
          for (const Op& op : {Op{forward}, Op{backward}})
            for (const Call& call : translate(op, {}).calls)
              if (const auto* attention = std::get_if<FusedAttention>(&call))
                calls.push_back(*attention);
        }
  return calls;
}

/// What the library's own rules say before it asks a device.
TEST(Gpu, CudnnsFrontendHasNothingAgainstOurGraphs) {
  if (const std::string why = objection_to(attentions().front(), 90);
      why.find("cannot be loaded") != std::string::npos ||
      why.find("this build") != std::string::npos)
    GTEST_SKIP() << why;
  for (const int sm : {80, 90, 100})
    for (const FusedAttention& call : attentions())
      EXPECT_EQ(objection_to(call, sm), "") << "sm_" << sm << (call.backward ? " backward" : "");
  FusedAttention wrong = attentions().back();
  ASSERT_TRUE(wrong.backward);
  wrong.left_bound = 0;
  EXPECT_NE(objection_to(wrong, 90), "") << "else nothing was checked";
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

/// By cuDNN where it has the shape, and by matmuls.
TEST(Gpu, AttentionIsTheReferences) {
  if (!why_no_gpu().empty()) GTEST_SKIP() << why_no_gpu();
  const auto device = open_gpu();
  const Managed memory{Pool::capacity}, workspace{std::int64_t{64} << 20};
  Pool pool{memory.data()};
  const auto compare = [&](const Op& op, bool fused) {
    const Resources resources{.workspace = workspace.data(), .fused_attention = fused};
    ASSERT_LE(workspace_bytes(op, resources), std::int64_t{64} << 20);
    const Translation translation = translate(op, resources);
    for (const Call& call : translation.calls)
      if (const auto* attention = std::get_if<FusedAttention>(&call))
        if (!device->fused_attention(*attention).why_not.empty()) return;
    const std::vector<std::byte> before = pool.snapshot();
    run_reference(op);
    const std::vector<std::byte> expected = pool.snapshot();
    pool.restore(before);
    for (const Call& call : translation.calls) device->run(call, Lane::compute);
    device->synchronize();
    expect_agreement(op, {pool, before, expected, pool.snapshot()}, 1.0 / 32,
                     fused ? "by cuDNN" : "by matmuls", 1);
    pool.restore(before);
  };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const bool causal : {true, false})
      for (const std::int64_t window : {0, 24})
        for (const std::int64_t first_key : {0, 40}) {
          pool.clear();
          AttentionShape shape{.batch = 2, .seq = 72, .heads = 4, .kv_heads = 2, .head_dim = 32};
          shape.causal = causal;
          shape.window = window;
          shape.queries = {{Places::Run{40, 72, 1}, Places::Run{}}};
          shape.keys = {{Places::Run{first_key, 72, 1}, Places::Run{}}};
          const auto like = [&](std::int64_t heads) {
            return pool.random({144, heads * 32}, dtype);
          };
          const Tensor q = like(4), k = like(2), v = like(2), o = like(4), d_o = like(4);
          const Tensor lse = pool.random({2, 4, 72}, DType::f32);
          run_reference(Attention{q, k, v, o, lse, shape});
          const Attention forward{q, k, v, like(4), pool.random({2, 4, 72}, DType::f32), shape};
          const AttentionBackward backward{q, k, v, o, lse, d_o, like(4), like(2), like(2), shape};
          for (const bool fused : {true, false}) {
            compare(forward, fused);
            compare(backward, fused);
          }
          if (HasFailure()) return;
        }
}

}  // namespace
}  // namespace shardmark::cuda
