#include "bench/analyze/summary.hpp"

#include "tests/analyze/collectives_recording.hpp"

#include <gmock/gmock.h>

#include <sstream>

namespace shardmark::bench::analyze {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t us = 1000;

Report report_of(const std::vector<RankBuilder>& ranks, std::vector<std::string> arguments = {}) {
  arguments.insert(arguments.begin(), "traces");
  return make_report(recording_of(ranks), parse_options(arguments));
}
std::string summary_of(const Report& report) {
  std::ostringstream out;
  print_summary(out, report);
  return out.str();
}
/// `compute_us` and then an all-reduce until `end_us`.
RankBuilder rank_with(int rank, std::int64_t compute_us, std::int64_t end_us) {
  RankBuilder made{rank};
  made.group("7", {0, 1}, 2, "tensor parallel").compute(0, compute_us * us);
  made.all_reduce(compute_us * us, end_us * us);
  return made;
}

TEST(AnalyzeVerdict, ASlowRankIsImbalance) {
  const Report report = report_of({rank_with(0, 60, 100), rank_with(1, 90, 100)});
  EXPECT_EQ(report.verdict.name, "imbalanced");
  EXPECT_THAT(report.verdict.reason,
              AllOf(HasSubstr("rank 1 computes 1.50x as long as rank 0"), HasSubstr("15.0 %")));
}

TEST(AnalyzeVerdict, ExposedCommunicationNamesTheCollective) {
  const Report report = report_of({rank_with(0, 60, 100), rank_with(1, 60, 100)});
  EXPECT_EQ(report.verdict.name, "communication_bound");
  EXPECT_THAT(report.verdict.reason,
              AllOf(HasSubstr("exposed communication of rank 0 is 40.0 % of the window (limit 25 "
                              "%)"),
                    HasSubstr("all_reduce of tp")));
  EXPECT_EQ(
      report_of({rank_with(0, 60, 100), rank_with(1, 60, 100)}, {"--limit-communication", "50"})
          .verdict.name,
      "compute_bound");
}

TEST(AnalyzeVerdict, ImbalanceIsOfTheStepsThatAllRanksHave) {
  RankBuilder longer = rank_with(0, 80, 90), shorter = rank_with(1, 80, 90);
  longer.step("ProfilerStep#1", 0, 90 * us).compute(100 * us, 180 * us);
  longer.step("ProfilerStep#2", 100 * us, 180 * us);
  shorter.step("ProfilerStep#1", 0, 90 * us);
  const Report report = report_of({longer, shorter});
  EXPECT_EQ(report.verdict.name, "compute_bound");
  EXPECT_DOUBLE_EQ(report.compared.ratio(), 1);
  shorter.compute(85 * us, 105 * us);
  EXPECT_THAT(summary_of(report_of({longer, shorter})),
              HasSubstr("imbalance: rank 1 computes 1.062x as long as rank 0 in the steps that all "
                        "ranks have\n"))
      << "of the step 85, of the trace 100 us against 160";
}

TEST(AnalyzeVerdict, ImbalanceWithoutStepsIsOfTheWindow) {
  const Report report = report_of({rank_with(0, 60, 100), rank_with(1, 90, 100)});
  EXPECT_DOUBLE_EQ(report.compared.ratio(), 1.5);
  EXPECT_THAT(summary_of(report),
              AllOf(HasSubstr("imbalance: rank 1 computes 1.500x as long as rank 0\n"),
                    HasSubstr("critical: rank 1\n")));
  EXPECT_DOUBLE_EQ(report_of({RankBuilder{0}.compute(0, us), RankBuilder{1}}).compared.ratio(), 0);
}

TEST(AnalyzeVerdict, AnIdleDeviceIsNoVerdictOfTheList) {
  RankBuilder rank{0};
  rank.compute(0, 10 * us).compute(90 * us, 100 * us);
  const Report report = report_of({rank});
  EXPECT_EQ(report.verdict.name, "none");
  EXPECT_THAT(report.verdict.reason,
              AllOf(HasSubstr("of rank 0 compute is 20.0 % of the window"),
                    HasSubstr("idle 80.0 %; look at what happens before and after")));
}

TEST(AnalyzeVerdict, ComputeBoundIsMostOfTheWindow) {
  RankBuilder rank{0};
  rank.compute(0, 47 * us).copy(47 * us, 81 * us).compute(99 * us, 100 * us);
  const Report report = report_of({rank});
  EXPECT_EQ(report.verdict.name, "none");
  EXPECT_THAT(report.verdict.reason,
              AllOf(HasSubstr("compute is 48.0 %"), HasSubstr("exposed copies 34.0 %"),
                    HasSubstr("idle 18.0 %; try to copy less")));
}

TEST(AnalyzeVerdict, WorkWithoutATimeHasNone) {
  RankBuilder rank{0};
  rank.compute(5 * us, 5 * us).compute(5 * us, 5 * us);
  const Report report = report_of({rank});
  EXPECT_EQ(report.verdict.name, "none");
  EXPECT_EQ(report.verdict.reason, "no device work takes any time");
}

TEST(AnalyzeVerdict, ComputeBoundIsMostOfTheSteps) {
  RankBuilder rank{0};
  rank.compute(50 * us, 52 * us).step("ProfilerStep#1", 0, 1000 * us);
  const Report report = report_of({rank});
  EXPECT_EQ(report.verdict.name, "none");
  EXPECT_THAT(report.verdict.reason,
              HasSubstr("compute is 100.0 % of the window, but 0.2 % of the steps, in which the "
                        "device is idle for 99.8 %"));
}

TEST(AnalyzeVerdict, ARunOfCopiesIsNotComputeBound) {
  RankBuilder rank{0};
  rank.copy(0, 90 * us).compute(90 * us, 100 * us);
  const Report report = report_of({rank});
  EXPECT_EQ(report.verdict.name, "none");
  EXPECT_THAT(report.verdict.reason, HasSubstr("exposed copies 90.0 %"));
}

TEST(AnalyzeVerdict, ComputeBoundSaysWhatATimelineCannotKnow) {
  const Report report = report_of({rank_with(0, 95, 100), rank_with(1, 95, 100)});
  EXPECT_EQ(report.verdict.name, "compute_bound");
  EXPECT_THAT(report.verdict.reason,
              AllOf(HasSubstr("compute is 95.0 %"), HasSubstr("no timeline says")));
}

TEST(AnalyzeVerdict, StagesThatWaitAreABubble) {
  RankBuilder first{0}, second{1};
  first.group("pp", {0, 1}, 2, "pipeline parallel").compute(0, 40 * us);
  first.message("send", 1, 40 * us, 50 * us).message("recv", 1, 50 * us, 100 * us);
  second.group("pp", {0, 1}, 2, "pipeline parallel").message("recv", 0, 0, 50 * us);
  second.compute(50 * us, 90 * us).message("send", 0, 90 * us, 100 * us);
  const Report report = report_of({first, second});
  EXPECT_EQ(report.verdict.name, "bubble_bound") << report.verdict.reason;
  EXPECT_THAT(summary_of(report), HasSubstr("Pipeline stages"));
}

TEST(AnalyzeSummary, SaysPercentagesAndTheirDenominators) {
  const std::string text = summary_of(report_of({rank_with(0, 60, 100), rank_with(1, 60, 100)}));
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("ranks 0-1 of 2"), HasSubstr("percentages are of it"), HasSubstr("span(us)"),
            HasSubstr("      60.000   60.0       40.000   40.0"),
            HasSubstr("all_reduce of tp (40.000 of 40.000 us)"), HasSubstr("Collectives of rank 0"),
            HasSubstr("Ranks against each other"), HasSubstr("verdict: communication_bound")));
}

TEST(AnalyzeSummary, WithoutCommunicationOverlapIsNone) {
  RankBuilder rank{0};
  rank.compute(0, 10 * us);
  const std::string text = summary_of(report_of({rank}));
  EXPECT_THAT(text, AllOf(HasSubstr("    none\n"), Not(HasSubstr("nan")),
                          Not(HasSubstr("Collectives")), Not(HasSubstr("Ranks against"))));
}

TEST(AnalyzeSummary, ARunWithoutWorkIsPrinted) {
  const std::string text = summary_of(report_of({RankBuilder{0}}));
  EXPECT_THAT(text, AllOf(HasSubstr("no device work"), HasSubstr("verdict: none")));
}

TEST(AnalyzeSummary, ManyStepsAreCutShort) {
  RankBuilder rank{0};
  for (std::int64_t i = 0; i < 25; ++i)
    rank.compute(i * us, i * us + 900)
        .step("ProfilerStep#" + std::to_string(i), i * us, (i + 1) * us);
  EXPECT_THAT(summary_of(report_of({rank})), HasSubstr("... and 5 more"));
}

TEST(AnalyzeSummary, LongTracesAreInMilliseconds) {
  EXPECT_THAT(summary_of(report_of({rank_with(0, 60'000, 100'000)})),
              AllOf(HasSubstr("span(ms)"), HasSubstr("      60.000   60.0       40.000   40.0")));
}

TEST(AnalyzeSummary, CollectivesHaveTheirExposedShare) {
  RankBuilder rank{0};
  rank.group("7", {0, 1}).compute(0, 70 * us).all_reduce(60 * us, 100 * us);
  EXPECT_THAT(summary_of(report_of({rank})), HasSubstr("40.000      30.000   75.0 "));
}

TEST(AnalyzeSummary, OptionsThatNameNothingAreWarnedOf) {
  EXPECT_THAT(summary_of(report_of({rank_with(0, 60, 100)}, {"--axis-of", "8=tp", "--comm-pattern",
                                                             "zzz", "--window", "0,150"})),
              AllOf(HasSubstr("--axis-of 8=tp: no rank has a group"),
                    HasSubstr("--comm-pattern zzz: no kernel"),
                    HasSubstr("--window goes on after the last device work ends at 100.000 us")));
}

TEST(AnalyzeSummary, TopZeroLeavesListsOut) {
  const std::string text = summary_of(report_of({rank_with(0, 60, 100)}, {"--top", "0"}));
  EXPECT_THAT(text, AllOf(Not(HasSubstr("Top kernels")), Not(HasSubstr("Longest gaps")),
                          Not(HasSubstr("Collectives"))));
}

TEST(AnalyzeSummary, LongAndOddNamesFit) {
  EXPECT_EQ(shortened("gemm", 10), "gemm");
  EXPECT_EQ(shortened("a_very_long_kernel_name", 12), "a_very...ame");
  EXPECT_EQ(shortened("a\x1b[31m\nb", 20), "a [31m b");
  EXPECT_EQ(shortened(std::string(1 << 20, 'x'), 60).size(), 60U);
}

TEST(AnalyzeSummary, ADifferenceIsPrintedWithItsConclusion) {
  const Recording a = recording_of({rank_with(0, 60, 70), rank_with(1, 60, 70)});
  const Recording b = recording_of({rank_with(0, 60, 100), rank_with(1, 90, 100)});
  const RankSpans all(2, std::nullopt);
  std::ostringstream out;
  print_diff(out, diff_runs(a, all, b, all), 10);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("Where the time went"), HasSubstr("all_reduce"),
                               HasSubstr("rank 1"), HasSubstr("+30.000")));
}

}  // namespace
}  // namespace shardmark::bench::analyze
