#include "core/cuda/rank_gpu.hpp"

#include "core/error.hpp"
#include "core/functions.hpp"
#include "core/launch.hpp"
#include "core/rank.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <string>
#include <vector>

namespace shardmark::cuda {
namespace {

using testing::HasSubstr;

TEST(RankGpu, WithoutADriverEveryRankSaysSo) {
  if (why_no_cuda().empty()) GTEST_SKIP() << "there is a GPU";
  EXPECT_THAT(why_no_cuda(), HasSubstr("no GPU can be used"));
  for (const Path path : {Path::nccl, Path::staged, Path::mpi_cuda})
    for (const int size : {1, 3}) {
      std::atomic<int> num_told{0};
      run_threads(size, [&](Transport& transport) {
        RankGpuOptions options;
        options.path = path;
        try {
          (void)open_rank_gpu(transport, options);
        } catch (const InputError& error) {
          EXPECT_EQ(error.what(), why_no_cuda());
          ++num_told;
        }
      });
      EXPECT_EQ(num_told, size);
    }
}

TEST(RankGpu, FactsPeaksAndTheCache) {
  if (!why_no_cuda().empty()) GTEST_SKIP() << why_no_cuda();
  run_threads(1, [](Transport& transport) {
    const auto gpu = open_rank_gpu(transport, {});
    const GpuFacts& facts = gpu->facts();
    EXPECT_FALSE(facts.name.empty());
    EXPECT_THAT(facts.bus_id, HasSubstr(":"));
    EXPECT_GT(facts.num_sms, 0);
    EXPECT_GT(facts.memory_bytes, 0);
    EXPECT_EQ(facts.versions.size(), 5U);
    gpu->flush_cache();
    EXPECT_GT(gpu->measure_peak_tflops(DType::bf16), gpu->measure_peak_tflops(DType::f32));

    const auto backend = gpu->make_backend(transport);
    Rank rank{0, Mesh{{}}, *backend};
    gpu->reset_peak();
    const std::int64_t before = gpu->peak_bytes();
    constexpr std::int64_t bytes = 64 << 20;
    {
      const Buffer x = rank.allocate({bytes / 4}, DType::f32, Category::activation);
      rank.synchronize();
    }
    EXPECT_GE(gpu->peak_bytes(), before + bytes);
    EXPECT_LT(gpu->peak_bytes(), before + 2 * bytes);
  });
}

/// Three ranks on one GPU, or on several.
TEST(RankGpu, RanksAddUpThroughTheHost) {
  if (!why_no_cuda().empty()) GTEST_SKIP() << why_no_cuda();
  run_threads(3, [](Transport& transport) {
    RankGpuOptions options;
    options.path = Path::staged;
    const auto gpu = open_rank_gpu(transport, options);
    const auto backend = gpu->make_backend(transport);
    const Mesh mesh{{.tp = 3}};
    Rank rank{transport.rank(), mesh, *backend};
    const Group group = rank.group(Axis::tp);
    gpu->connect(group, Lane::tp);
    const Buffer x = rank.allocate({5}, DType::f32, Category::activation);
    const std::vector<float> mine(5, static_cast<float>(1 + transport.rank()));
    backend->write(x.tensor(), mine.data());
    rank.order(Lane::compute, Lane::tp);
    rank.submit(AllReduce{x.tensor(), group, Reduction::sum}, Lane::tp);
    rank.order(Lane::tp, Lane::compute);
    std::vector<float> sum(5);
    backend->read(x.tensor(), sum.data());
    EXPECT_THAT(sum, testing::Each(6.0F));
  });
}

}  // namespace
}  // namespace shardmark::cuda
