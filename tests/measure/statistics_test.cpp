#include "bench/harness/statistics.hpp"

#include <gmock/gmock.h>

namespace shardmark::bench {
namespace {

TEST(Percentile, InterpolatesLikeNumpy) {
  const std::vector<double> values{4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(percentile(values, 0), 1);
  EXPECT_DOUBLE_EQ(percentile(values, 50), 2.5);
  EXPECT_DOUBLE_EQ(percentile(values, 90), 3.7);
  EXPECT_DOUBLE_EQ(percentile(values, 100), 4);
}

TEST(Summary, OfKnownSamples) {
  const TimeSummary summary = summarize(std::vector<double>{10, 20, 30});
  EXPECT_DOUBLE_EQ(summary.p50, 20);
  EXPECT_DOUBLE_EQ(summary.mean, 20);
  EXPECT_DOUBLE_EQ(summary.cv_pct, 50);
  EXPECT_EQ(summary.samples, 3);
}

TEST(HalfWidth, ShrinksWithMoreSamplesAndIsWideForFew) {
  std::vector<double> values{1, 2, 3, 4};
  EXPECT_EQ(median_half_width(values), 1);
  std::vector<double> many;
  for (int i = 0; i < 1000; ++i) many.push_back(100 + i % 11);
  EXPECT_LT(median_half_width(many), 0.01);
}

TEST(MedianNoise, SeesADriftThatOrderStatisticsTakeForCertainty) {
  // A machine that is 10 % slower for the last 40 % of the samples.
  std::vector<double> drifting(120, 1.0);
  drifting.resize(200, 1.1);
  EXPECT_EQ(median_half_width(drifting), 0);
  // Batch medians: 6 of 1.0 and 4 of 1.1, deviation 0.0516, times 2.262 / sqrt(10), over 1.04.
  EXPECT_NEAR(median_noise(drifting), 0.0355, 1e-4);
  EXPECT_EQ(summarize(drifting).p50_ci_pct, 100 * median_noise(drifting));
  const std::vector<double> steady(200, 1.0);
  EXPECT_EQ(median_noise(steady), 0);
  EXPECT_EQ(median_noise(std::vector<double>(49, 1.0)),
            median_half_width(std::vector<double>(49, 1.0)));
}

TEST(StopRule, NeedsSamplesAndThenPrecisionOrTime) {
  const StopRule rule{.min_samples = 6, .max_time_s = 2};
  const std::vector<double> steady(6, 1.0);
  EXPECT_TRUE(should_stop(rule, steady, 0.1));
  EXPECT_FALSE(should_stop(rule, std::vector<double>(5, 1.0), 0.1));
  const std::vector<double> noisy{1, 2, 1, 3, 1, 2};
  EXPECT_FALSE(should_stop(rule, noisy, 1.9));
  EXPECT_TRUE(should_stop(rule, noisy, 2.0));
}

TEST(StopRule, GivesUpOnManySamplesOfASlowShape) {
  const StopRule rule{.min_samples = 10, .max_time_s = 2};
  EXPECT_FALSE(should_stop(rule, std::vector<double>(2, 1.0), 60));
  EXPECT_TRUE(should_stop(rule, std::vector<double>(3, 1.0), 6));
}

}  // namespace
}  // namespace shardmark::bench
