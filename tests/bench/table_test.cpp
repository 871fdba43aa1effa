#include "bench/harness/table.hpp"

#include "layers/volume.hpp"

#include <gmock/gmock.h>

#include <sstream>

namespace shardmark::bench {
namespace {

using testing::HasSubstr;

Outcome row(int tp, double p50_us) {
  Outcome outcome;
  Result& result = outcome.result;
  result.config.layer.parallel.tp.size = tp;
  result.time = {.p50 = p50_us, .samples = 10};
  result.verdict = "compute_bound";
  result.volume = communication_volume(result.config.layer, Phase::step);
  result.bytes_analytic = result.bytes_observed = total_bytes(result.volume);
  return outcome;
}

TEST(Table, ComparesWithTp1OfTheSameShape) {
  std::ostringstream out;
  Table table{out, false};
  table.add(row(1, 2000));
  table.add(row(2, 1250));
  EXPECT_THAT(out.str(), testing::AllOf(HasSubstr("1.60x"), HasSubstr("1.00x")));
  Outcome other = row(2, 1000);
  other.result.config.layer.shape.hidden = 4096;
  out.str("");
  table.add(other);
  EXPECT_THAT(out.str(), testing::Not(HasSubstr("x pass")));
}

TEST(Table, PrintsTheCommunicationOfARow) {
  std::ostringstream out;
  Table table{out, true};
  table.add(row(2, 1250));
  EXPECT_THAT(out.str(),
              testing::AllOf(HasSubstr("comm/step: forward 2 all-reduce, backward 2 all-reduce: "
                                       "16.78 MB by formula, 16.78 MB counted"),
                             HasSubstr("fc2 forward: all-reduce of the partial sums"),
                             HasSubstr("t = 2, T = 1024 tokens, h = 1024")));
}

TEST(Table, SkippedAndFailedRowsSayWhy) {
  std::ostringstream out;
  Table table{out, false};
  Outcome skipped = row(2, 0);
  skipped.result.status = Status::skipped;
  skipped.result.reason = "does not fit";
  table.add(skipped);
  EXPECT_THAT(out.str(), HasSubstr("skipped: does not fit"));
  Outcome failed = row(2, 1000);
  failed.result.status = Status::failed;
  failed.result.check.pass = false;
  failed.result.reason = "check failed: rank 1";
  table.add(failed);
  EXPECT_THAT(out.str(),
              testing::AllOf(HasSubstr("FAIL "), HasSubstr("FAILED: check failed: rank 1")));
}

TEST(Table, BytesAreDecimal) {
  EXPECT_EQ(format_bytes(12), "12 B");
  EXPECT_EQ(format_bytes(1e9), "1.00 GB");
  EXPECT_EQ(format_bytes(1536), "1.54 kB");
}

TEST(Table, CollectivesAreCountedPerDirection) {
  LayerConfig config;
  config.parallel.tp.size = 4;
  config.parallel.sequence_parallel = true;
  EXPECT_EQ(count_collectives(communication_volume(config, Phase::forward)),
            "forward 2 all-gather + 2 reduce-scatter");
}

}  // namespace
}  // namespace shardmark::bench
