#include "bench/analyze/report.hpp"

#include "bench/analyze/csv.hpp"
#include "bench/analyze/json.hpp"
#include "bench/harness/csv.hpp"
#include "core/error.hpp"
#include "tests/analyze/collectives_recording.hpp"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace shardmark::bench::analyze {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::int64_t us = 1000;

Options options_of(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "traces");
  return parse_options(arguments);
}

/// Two steps of 100 us: 60 us compute, 30 us all-reduce of which 10 us are under compute.
RankBuilder two_steps(int rank) {
  RankBuilder made{rank};
  made.group("7", {0, 1});
  for (const std::int64_t begin : {0 * us, 100 * us})
    made.compute(begin, begin + 60 * us)
        .all_reduce(begin + 50 * us, begin + 80 * us)
        .step("ProfilerStep#" + std::to_string(5 + begin / (100 * us)), begin, begin + 100 * us);
  return made;
}

/// compute, exposed communication, overlapped, idle, in microseconds.
std::vector<std::int64_t> split_of(const Account& account) {
  return {account.compute_ns / us, account.exposed_comm_ns / us, account.overlapped_ns / us,
          account.idle_ns / us};
}

TEST(AnalyzeReport, TheWholeTraceAndEachStepAddUp) {
  const Report report = make_report(recording_of({two_steps(0), two_steps(1)}), options_of({}));
  ASSERT_THAT(report.ranks, SizeIs(2));
  for (const RankReport& rank : report.ranks) {
    ASSERT_TRUE(rank.total) << "rank " << rank.rank;
    EXPECT_EQ(rank.total->span_ns, 180 * us) << "rank " << rank.rank;
    EXPECT_THAT(split_of(*rank.total), ElementsAre(120, 40, 20, 20)) << "rank " << rank.rank;
    ASSERT_THAT(rank.steps, SizeIs(2)) << "rank " << rank.rank;
    for (const Account& step : rank.steps) {
      EXPECT_EQ(step.span_ns, 100 * us) << "rank " << rank.rank << ' ' << step.window.name;
      EXPECT_THAT(split_of(step), ElementsAre(60, 20, 10, 20)) << step.window.name;
      EXPECT_EQ(step.residual_ns, 0);
    }
  }
  ASSERT_TRUE(report.across);
  EXPECT_THAT(report.across->collectives, SizeIs(2));
  EXPECT_THAT(report.collectives, SizeIs(2));
}

TEST(AnalyzeReport, ChosenStepsCutEverything) {
  const Report report =
      make_report(recording_of({two_steps(0), two_steps(1)}), options_of({"--steps", "last:1"}));
  EXPECT_EQ(report.window, "steps:6");
  const RankReport& rank = report.ranks[1];
  EXPECT_EQ(rank.total->span_ns, 100 * us);
  EXPECT_THAT(split_of(*rank.total), ElementsAre(60, 20, 10, 20));
  ASSERT_THAT(rank.steps, SizeIs(1));
  EXPECT_EQ(rank.steps[0].window.name, "step:ProfilerStep#6");
  ASSERT_THAT(report.collectives, SizeIs(2));
  EXPECT_EQ(report.collectives[0].count, 1);
  EXPECT_THAT(report.across->collectives, SizeIs(1));
  EXPECT_EQ(rank.kernels.front().count, 1);
  EXPECT_THAT(
      make_report(recording_of({two_steps(0)}), options_of({"--steps", "none"})).ranks[0].steps,
      IsEmpty());
}

TEST(AnalyzeReport, ARangeSumsUpItsParts) {
  Recording recording = recording_of({two_steps(0)});
  Timeline& timeline = recording.ranks[0].timeline;
  timeline.names.emplace_back("forward");
  const auto name = static_cast<std::uint32_t>(timeline.names.size() - 1);
  // Two parts, one given twice; 40 to 70 and 150 to 160.
  for (const Span& part :
       {Span{40 * us, 70 * us}, Span{150 * us, 160 * us}, Span{50 * us, 60 * us}})
    timeline.ranges.push_back({part, name});
  const Report report = make_report(recording, options_of({"--range", "forward"}));
  const Account& total = *report.ranks[0].total;
  EXPECT_EQ(total.window.name, "range:forward");
  EXPECT_EQ(total.span_ns, 40 * us);
  EXPECT_THAT(split_of(total), ElementsAre(30, 10, 20, 0));
  EXPECT_EQ(total.num_kernels, 4);
  EXPECT_EQ(total.num_comm, 2);
  const Report both = make_report(recording, options_of({"--range", "forward", "--steps", "6"}));
  EXPECT_EQ(both.window, "steps:6 and range:forward");
  EXPECT_EQ(both.ranks[0].total->span_ns, 10 * us);
  EXPECT_EQ(both.ranks[0].steps.at(0).span_ns, 10 * us);
}

TEST(AnalyzeReport, AKernelAcrossTwoPartsCountsOnce) {
  RankBuilder rank{0};
  rank.compute(0, 100 * us)
      .step("ProfilerStep#1", 0, 30 * us)
      .step("ProfilerStep#3", 50 * us, 90 * us);
  const Report report = make_report(recording_of({rank}), options_of({"--steps", "1,3"}));
  EXPECT_EQ(report.ranks[0].total->num_kernels, 1);
  EXPECT_EQ(report.ranks[0].total->compute_ns, 70 * us);
  EXPECT_EQ(report.ranks[0].total->span_ns, 70 * us);
}

TEST(AnalyzeReport, AWindowCountsFromTheFirstWork) {
  RankBuilder rank{0};
  rank.compute(1000 * us, 1100 * us);
  const Report report = make_report(recording_of({rank}), options_of({"--window", "50,150.5"}));
  EXPECT_EQ(report.ranks[0].total->span_ns, 100'500);
  EXPECT_EQ(report.ranks[0].total->compute_ns, 50 * us);
  EXPECT_EQ(report.ranks[0].total->idle_ns, 50'500);
}

TEST(AnalyzeReport, WindowsAreNamedWithAllTheirDigits) {
  RankBuilder rank{0};
  rank.compute(0, 1'300'000 * us);
  const auto name_of = [&](const std::string& window) {
    return make_report(recording_of({rank}), options_of({"--window", window})).window;
  };
  EXPECT_EQ(name_of("1234567,1234999"), "window:1234567-1234999us");
  EXPECT_EQ(name_of("0.001,1250.25"), "window:0.001-1250.25us");
}

// The collective lasts from 100 to 230 us, of which the window sees 30 us.
TEST(AnalyzeReport, AllTablesOfAWindowAreOfTheWindow) {
  RankBuilder rank{0};
  rank.compute(0, 100 * us).group("0", {0, 1}).all_reduce(100 * us, 230 * us);
  const Report report = make_report(recording_of({rank}), options_of({"--window", "90,130"}));
  EXPECT_EQ(report.ranks[0].total->exposed_comm_ns, 30 * us);
  ASSERT_THAT(report.collectives, SizeIs(1));
  EXPECT_DOUBLE_EQ(report.collectives[0].total_us, 30);
  EXPECT_DOUBLE_EQ(report.collectives[0].exposed_us, 30);
  ASSERT_THAT(report.ranks[0].kernels, SizeIs(2));
  EXPECT_EQ(report.ranks[0].kernels[0].total_ns, 30 * us);
  EXPECT_EQ(report.ranks[0].kernels[1].total_ns, 10 * us);
  const Report within = make_report(recording_of({rank}), options_of({"--window", "150,200"}));
  ASSERT_THAT(within.collectives, SizeIs(1));
  EXPECT_DOUBLE_EQ(within.collectives[0].exposed_us, 50);
  EXPECT_THAT(within.verdict.reason, HasSubstr("most is all_reduce"));
}

TEST(AnalyzeReport, WithoutNamesOfKernelsThereIsNoVerdict) {
  Recording recording = recording_of({two_steps(0), two_steps(1)});
  recording.ranks[1].timeline.no_classes = "the file has no names of kernels";
  const Report report = make_report(recording, options_of({}));
  EXPECT_EQ(report.verdict.name, "none");
  EXPECT_EQ(report.verdict.reason, "rank 1: the file has no names of kernels");
}

TEST(AnalyzeReport, WhatIsNotThereIsNamed) {
  const Recording recording = recording_of({two_steps(0)});
  const auto problem_of = [&](const std::vector<std::string>& arguments) {
    try {
      (void)make_report(recording, options_of(arguments));
    } catch (const InputError& error) {
      return std::string{error.what()};
    }
    return std::string{"accepted"};
  };
  EXPECT_THAT(problem_of({"--steps", "9"}), HasSubstr("there are only 5-6"));
  EXPECT_THAT(problem_of({"--range", "forward"}), HasSubstr("no rank has a host range"));
  EXPECT_THAT(problem_of({"--window", "180,200"}),
              HasSubstr("the last device work ends at 180.000"));
  RankBuilder without_steps{0};
  without_steps.compute(0, us);
  EXPECT_THROW((void)make_report(recording_of({without_steps}), options_of({"--steps", "last:1"})),
               InputError);
}

TEST(AnalyzeReport, ARankWithoutWorkIsSaidAndTheOthersGoOn) {
  const Report report = make_report(recording_of({two_steps(0), RankBuilder{1}}), options_of({}));
  EXPECT_TRUE(report.ranks[0].total);
  EXPECT_FALSE(report.ranks[1].total);
  EXPECT_NE(report.verdict.name, "");
  const Report nothing = make_report(recording_of({RankBuilder{0}}), options_of({}));
  EXPECT_EQ(nothing.verdict.name, "none");
}

TEST(AnalyzeReport, CellsAreExactAndJsonHoldsTheSame) {
  const Report report =
      make_report(recording_of({two_steps(0), two_steps(1)}), options_of({"--comm-rule", "nccl"}));
  const auto rows = parse_csv(csv_text(tables_of(report).front()));
  ASSERT_THAT(rows, SizeIs(7));
  const auto json = nlohmann::json::parse(json_text(report));
  ASSERT_THAT(json["results"], SizeIs(6));
  const auto cell = [&](std::size_t row, const std::string& column) {
    const auto at = std::ranges::find(rows[0], column) - rows[0].begin();
    return rows.at(row).at(static_cast<std::size_t>(at));
  };
  EXPECT_EQ(cell(1, "window_us"), "180.000");
  EXPECT_EQ(cell(1, "comp_us"), "120.000");
  EXPECT_EQ(cell(1, "overlap_pct"), "33.3333");
  EXPECT_EQ(cell(1, "comm_rule"), "nccl");
  EXPECT_EQ(cell(2, "window"), "step:ProfilerStep#5");
  EXPECT_EQ(cell(2, "verdict"), "") << "the verdict is of the whole window";
  for (std::size_t row = 1; row < rows.size(); ++row)
    for (std::size_t column = 0; column < rows[0].size(); ++column) {
      const std::string& text = rows[row][column];
      const auto& object = json["results"][row - 1];
      const std::string& name = rows[0][column];
      if (text.empty())
        EXPECT_FALSE(object.contains(name)) << name;
      else if (object.at(name).is_number())
        EXPECT_EQ(object.at(name).get<double>(), std::stod(text)) << name;
      else
        EXPECT_EQ(object.at(name).get<std::string>(), text) << name;
    }
}

TEST(AnalyzeReport, NoCommunicationHasNoOverlap) {
  RankBuilder rank{0};
  rank.compute(0, 10 * us);
  const auto rows =
      parse_csv(csv_text(tables_of(make_report(recording_of({rank}), options_of({}))).front()));
  const auto at = std::ranges::find(rows[0], "overlap_pct") - rows[0].begin();
  EXPECT_EQ(rows[1][static_cast<std::size_t>(at)], "");
}

/// Cells of a column of `results`, below its name.
std::vector<std::string> column_of(const Report& report, const std::string& name) {
  const auto rows = parse_csv(csv_text(tables_of(report).front()));
  const auto at = static_cast<std::size_t>(std::ranges::find(rows[0], name) - rows[0].begin());
  std::vector<std::string> cells;
  for (std::size_t row = 1; row < rows.size(); ++row) cells.push_back(rows[row].at(at));
  return cells;
}

TEST(AnalyzeReport, WaitsAndTheCriticalRankStandByStep) {
  // Rank 1 comes 10 us late in the first step, and they are equal in the second.
  RankBuilder first = two_steps(0), second{1};
  second.group("7", {0, 1}).compute(0, 60 * us).all_reduce(60 * us, 80 * us);
  second.compute(100 * us, 160 * us).all_reduce(150 * us, 180 * us);
  second.step("ProfilerStep#5", 0, 100 * us).step("ProfilerStep#6", 100 * us, 200 * us);
  const Report report = make_report(recording_of({first, second}), options_of({}));
  EXPECT_THAT(column_of(report, "wait_us"),
              ElementsAre("10.000", "10.000", "0.000", "0.000", "0.000", "0.000"));
  EXPECT_THAT(column_of(report, "transfer_us"),
              ElementsAre("50.000", "20.000", "30.000", "50.000", "20.000", "30.000"));
  EXPECT_THAT(column_of(report, "is_critical"),
              ElementsAre("false", "false", "", "true", "true", ""));
}

TEST(AnalyzeReport, FilesHaveMoreGapsThanArePrinted) {
  RankBuilder rank{0};
  for (std::int64_t i = 0; i < 150; ++i) rank.compute(10 * i, 10 * i + 9);
  const auto num_gaps = [&](const char* top) {
    return make_report(recording_of({rank}), options_of({"--top", top})).ranks[0].gaps.size();
  };
  EXPECT_EQ(num_gaps("0"), 100U);
  EXPECT_EQ(num_gaps("120"), 120U);
}

TEST(AnalyzeReport, ADifferenceOfNothingHasAllKeys) {
  const Recording recording = recording_of({two_steps(0)});
  const RankSpans all(1, std::nullopt);
  const Options options = parse_options({"a", "b", "--diff"});
  const auto json =
      nlohmann::json::parse(diff_json_text(options, diff_runs(recording, all, recording, all)));
  EXPECT_TRUE(json.at("kernels").empty());
  EXPECT_TRUE(json.at("collectives").empty());
  EXPECT_FALSE(json.at("categories").empty());
}

TEST(AnalyzeReport, MicrosecondsKeepTheirNanoseconds) {
  EXPECT_EQ(us_text(0), "0.000");
  EXPECT_EQ(us_text(1), "0.001");
  EXPECT_EQ(us_text(-1), "-0.001");
  EXPECT_EQ(us_text(-1234567), "-1234.567");
  EXPECT_EQ(us_text(1222847000), "1222847.000");
  EXPECT_EQ(us_text(9'007'199'254'740'993), "9007199254740.993");
}

TEST(AnalyzeReport, ColumnsAreDescribedInTheReadme) {
  EXPECT_NE(read_file(SHARDMARK_SOURCE_DIR "/results/README.md").find(columns_markdown()),
            std::string::npos)
      << "put what --list-columns prints between the marks";
}

TEST(AnalyzeReport, BytesThatAreNoTextDoNotStopJson) {
  RankBuilder rank{0};
  rank.compute(0, us, "kernel\xff\x80");
  EXPECT_NO_THROW((void)json_text(make_report(recording_of({rank}), options_of({}))));
}

}  // namespace
}  // namespace shardmark::bench::analyze
