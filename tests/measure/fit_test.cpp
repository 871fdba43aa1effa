#include "bench/harness/fit.hpp"

#include <gmock/gmock.h>

namespace shardmark::bench {
namespace {

Result row(int tp, double hidden, double time_us) {
  Result result;
  result.config.layer.parallel.tp.size = tp;
  result.config.layer.shape.hidden = static_cast<std::int64_t>(hidden);
  result.flops_observed = 2.0 * 512 * hidden * 4 * hidden / tp;
  result.bytes_observed = (tp - 1.0) / tp * 512 * 4 * hidden * 4;
  result.flops_model_causal = result.flops_model_full = result.flops_observed * tp;
  result.peak.tflops = 0.2;
  result.time.p50 = time_us;
  return result;
}

/// Rows of a machine with F = 0.15 TFLOP/s, B = 3 GB/s, alpha = 40 us.
std::vector<Result> synthetic_rows() {
  std::vector<Result> rows;
  for (const int tp : {1, 2, 4})
    for (const double hidden : {256.0, 512.0, 1024.0}) {
      Result result = row(tp, hidden, 0);
      result.time.p50 = result.flops_observed / 0.15 / 1e6 + result.bytes_observed / 3.0 / 1e3 + 40;
      rows.push_back(result);
    }
  return rows;
}

TEST(CostModel, FindsTheNumbersThatMadeTheRows) {
  const Fit fit = fit_cost_model(synthetic_rows());
  ASSERT_TRUE(fit.model) << fit.reason;
  EXPECT_NEAR(fit.model->rate_tflops, 0.15, 1e-6);
  EXPECT_NEAR(fit.model->bandwidth_GBps, 3.0, 1e-4);
  EXPECT_NEAR(fit.model->alpha_us, 40, 1e-2);
  EXPECT_LT(fit.model->worst_error_pct, 1e-3);
  EXPECT_EQ(fit.model->rows, 9);
}

TEST(CostModel, NeverFitsANegativeTerm) {
  std::vector<Result> rows = synthetic_rows();
  for (Result& result : rows)  // faster the more bytes: no bandwidth explains this
    result.time.p50 = result.flops_observed / 0.15 / 1e6 / (1 + result.bytes_observed / 1e7) + 40;
  const Fit fit = fit_cost_model(rows);
  ASSERT_TRUE(fit.model);
  EXPECT_FALSE(fit.model->has_bandwidth);
  EXPECT_GE(fit.model->alpha_us, 0);
  EXPECT_GT(fit.model->worst_error_pct, 1);
}

TEST(CostModel, SaysWhyItIsNotFitted) {
  std::vector<Result> rows = synthetic_rows();
  rows.resize(3);
  EXPECT_FALSE(fit_cost_model(rows).model);
  EXPECT_THAT(fit_cost_model(rows).reason, testing::HasSubstr("3 rows with 1 different tp"));
}

TEST(CostModel, LeavesOutRowsThatDidNotRun) {
  std::vector<Result> rows = synthetic_rows();
  rows.push_back(row(2, 512, 1e9));
  rows.back().status = Status::failed;
  EXPECT_EQ(fit_cost_model(rows).model->rows, 9);
}

TEST(Shapes, NameTheFastestAndTheMostEfficientTp) {
  const std::vector<Result> rows{row(1, 512, 1000), row(2, 512, 600), row(4, 512, 650)};
  const auto summaries = summarize_shapes(rows);
  ASSERT_EQ(summaries.size(), 1U);
  EXPECT_EQ(summaries[0].fastest_tp, 2);
  EXPECT_EQ(summaries[0].best_mfu_tp, 1);
  EXPECT_EQ(summaries[0].crossover,
            "tp 2 is 1.67x as fast as tp 1; tp 4 is slower than tp 2 (1.08x the time)");
}

}  // namespace
}  // namespace shardmark::bench
