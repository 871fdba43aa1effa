// What a rank computes on: rules of the options, and the engine of a machine without a GPU.

#include "bench/harness/engine.hpp"

#include "bench/collectives/options.hpp"
#include "bench/harness/options.hpp"
#include "core/error.hpp"
#include "core/functions.hpp"
#include "core/launch.hpp"
#include "core/rank.hpp"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <string>
#include <vector>

namespace shardmark::bench {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Options parsed(std::vector<std::string> arguments) { return parse_options(arguments); }

TEST(EngineOptions, TransportIsHowRanksStartOrHowBytesGo) {
  const Options threads = parsed({"--transport", "threads"});
  EXPECT_EQ(threads.transport, TransportKind::threads);
  EXPECT_EQ(threads.runner.engine.path, std::nullopt);
  const Options staged = parsed({"--transport", "staged"});
  EXPECT_EQ(staged.transport, std::nullopt);
  EXPECT_EQ(staged.runner.engine.path, cuda::Path::staged);
  const Options mpi_cuda = parsed({"--transport", "mpi-cuda"});
  EXPECT_EQ(mpi_cuda.transport, TransportKind::mpi);
  EXPECT_EQ(mpi_cuda.runner.engine.path, cuda::Path::mpi_cuda);
}

TEST(EngineOptions, RecordRunsNothing) {
  EXPECT_TRUE(parsed({"--backend", "record"}).dry_run);
  EXPECT_FALSE(parsed({"--backend", "cuda"}).dry_run);
  EXPECT_EQ(parsed({"--backend", "cuda"}).runner.engine.backend, BackendKind::cuda);
}

/// What runs nothing needs no GPU.
TEST(EngineOptions, OfGpusContradictWhatRunsNothing) {
  for (const std::vector<std::string>& gpu :
       std::vector<std::vector<std::string>>{{"--backend", "cuda"},
                                             {"--transport", "staged"},
                                             {"--device", "0"},
                                             {"--allow-tf32"},
                                             {"--stream-priority", "high"}})
    for (const std::vector<std::string>& runs_nothing :
         std::vector<std::vector<std::string>>{{"--dry-run"}, {"--predict", "h100-sxm-8"}}) {
      std::vector<std::string> arguments = gpu;
      arguments.insert(arguments.end(), runs_nothing.begin(), runs_nothing.end());
      const auto names_both = AllOf(HasSubstr(gpu.front()), HasSubstr(runs_nothing.front()));
      EXPECT_THAT([&] { (void)parse_options(arguments); },
                  testing::ThrowsMessage<InputError>(names_both));
      if (runs_nothing.size() > 1) continue;
      arguments.insert(arguments.begin(), "all_reduce");
      EXPECT_THAT([&] { (void)collectives::parse_options(arguments); },
                  testing::ThrowsMessage<InputError>(names_both));
    }
  EXPECT_THAT(
      [] {
        (void)parse_options({"--predict", "h100-sxm-8", "--peak", "table"});
      },
      testing::ThrowsMessage<InputError>(HasSubstr("--peak")));
}

TEST(EngineOptions, ThreadsOfARankAreOfTheCpu) {
  EXPECT_THAT(
      [] {
        (void)parse_options({"--threads-per-rank", "2", "--backend", "cuda"});
      },
      testing::ThrowsMessage<InputError>(HasSubstr("--threads-per-rank 2")));
  EXPECT_EQ(parsed({"--threads-per-rank", "2"}).runner.threads_per_rank, 2);
}

/// Options of GPUs are refused where the user wants none.
TEST(EngineOptions, OptionsOfGpusNeedOne) {
  const std::vector<std::vector<std::string>> all{
      {"--transport", "nccl"}, {"--transport", "staged"}, {"--transport", "mpi-cuda"},
      {"--device", "1"},       {"--allow-tf32"},          {"--stream-priority", "high"}};
  for (std::vector<std::string> arguments : all) {
    const auto names_it = AllOf(HasSubstr(arguments.front()), HasSubstr("--backend cpu"));
    arguments.insert(arguments.end(), {"--backend", "cpu"});
    EXPECT_THAT([&] { (void)parse_options(arguments); },
                testing::ThrowsMessage<InputError>(names_it));
    arguments.insert(arguments.begin(), "all_reduce");
    EXPECT_THAT([&] { (void)collectives::parse_options(arguments); },
                testing::ThrowsMessage<InputError>(names_it));
  }
  EXPECT_THAT(
      [] {
        (void)parsed({"--peak", "table", "--backend", "cpu"});
      },
      testing::ThrowsMessage<InputError>(HasSubstr("--peak table")));
  EXPECT_THAT(
      [] {
        (void)parsed({"--peak", "table", "--peak-tflops", "3"});
      },
      testing::ThrowsMessage<InputError>(HasSubstr("leave out one of them")));
}

TEST(CpuEngine, MakesBackendsThatComputeAndCommunicate) {
  run_threads(3, [](Transport& transport) {
    const auto engine = open_engine({.backend = BackendKind::cpu}, transport);
    EXPECT_EQ(engine->backend_name(), "cpu");
    EXPECT_EQ(engine->transport_name(), "threads");
    EXPECT_FALSE(engine->device_name().empty());
    EXPECT_TRUE(engine->facts().is_null());
    EXPECT_EQ(gather_facts(*engine, transport), "");
    EXPECT_TRUE(engine->checks_itself()) << "so comparisons stay bitwise";
    EXPECT_EQ(engine->known_peak(DType::f32), std::nullopt);
    EXPECT_GT(engine->memory().bytes, 0);
    const Mesh mesh{{.tp = 3}};
    const Group group = mesh.group(transport.rank(), Axis::tp);
    engine->connect(group, Lane::tp);
    engine->reset_peak();
    const auto backend = engine->make_backend(transport);
    Rank rank{transport.rank(), mesh, *backend};
    const Buffer x = rank.allocate({100}, DType::f32, Category::activation);
    fill(rank, x.tensor(), 2);
    rank.order(Lane::compute, Lane::tp);
    all_reduce(rank, x.tensor(), group, Lane::tp);
    std::vector<float> values(100);
    backend->read(x.tensor(), values.data());
    EXPECT_THAT(values, testing::Each(6));
    EXPECT_DOUBLE_EQ(backend->bytes_started(), 2 * 2.0 / 3 * 400);
    EXPECT_GE(engine->peak_bytes(), 400);
  });
}

/// All ranks or none: where one cannot use a GPU, all say so alike.
TEST(GpuEngine, WithoutAGpuTheReasonIsGivenOnEveryRank) {
  if (cuda::why_no_cuda().empty()) GTEST_SKIP() << "there is a GPU";
  run_threads(2, [](Transport& transport) {
    EXPECT_THAT([&] { (void)open_engine({.backend = BackendKind::cuda}, transport); },
                testing::ThrowsMessage<InputError>(AllOf(testing::StartsWith("--backend cuda: "),
                                                         HasSubstr(cuda::why_no_cuda()))));
    EXPECT_THAT([&] { (void)open_engine({.path = cuda::Path::staged}, transport); },
                testing::ThrowsMessage<InputError>(testing::StartsWith("--transport staged: ")));
    EXPECT_THAT([&] { (void)open_engine({.device = 0}, transport); },
                testing::ThrowsMessage<InputError>(testing::StartsWith("--device 0: ")));
    EXPECT_THAT([&] { (void)open_engine({.allow_tf32 = true}, transport); },
                testing::ThrowsMessage<InputError>(testing::StartsWith("--allow-tf32: ")));
    EXPECT_THAT([&] { (void)open_engine({.high_priority = true}, transport); },
                testing::ThrowsMessage<InputError>(testing::StartsWith("--stream-priority high")));
    EXPECT_EQ(open_engine({}, transport)->backend_name(), "cpu") << "auto takes what is there";
  });
}

/// A peak that nobody knows makes no MFU, and says why.
TEST(Peak, AnUnknownOneIsAnEmptyCell) {
  Result result;
  result.time.p50 = 1000;
  result.flops_model_causal = result.flops_model_full = result.flops_observed = 1e9;
  result.peak = {0, 0, "unknown: no peak is known for a toaster"};
  EXPECT_TRUE(std::isnan(result.mfu_causal_pct()));
  EXPECT_TRUE(std::isnan(result.mfu_full_pct()));
  EXPECT_TRUE(std::isnan(result.hfu_pct()));
  result.peak = {10, 10, "user"};
  EXPECT_DOUBLE_EQ(result.mfu_causal_pct(), 10);
}

}  // namespace
}  // namespace shardmark::bench
