#include "bench/pipeline/options.hpp"
#include "tests/bench/help.hpp"
#include "tests/support/refusal.hpp"

#include <gmock/gmock.h>

namespace shardmark::bench::pp {
namespace {

using pipeline::Lowering;
using pipeline::ScheduleKind;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string problem_of(const std::vector<std::string>& arguments) {
  return test::refusal([&] { return parse_options(arguments); });
}

TEST(PipelineOptions, DefaultsRun1F1BOnAllRanks) {
  const Options options = parse_options({});
  EXPECT_THAT(options.kinds, ElementsAre(ScheduleKind::one_f_one_b));
  EXPECT_THAT(options.micro, ElementsAre(8));
  EXPECT_THAT(options.balance, ElementsAre(Balance::count));
  EXPECT_THAT(options.base.blocks, ElementsAre(BlockKind::model));
  EXPECT_THAT(options.base.layers, ElementsAre(8));
  EXPECT_THAT(options.base.phases, ElementsAre(Phase::step));
  EXPECT_THAT(pp_degrees(options, 1, 1, 3), ElementsAre(3));
  EXPECT_THAT(pp_degrees(options, 2, 2, 16), ElementsAre(4));
  EXPECT_THAT(pp_degrees(options, 2, 2, 3), ElementsAre(1));
}

TEST(PipelineOptions, ListsSweep) {
  const Options options =
      parse_options({"--schedule", "gpipe,zb-v,1f1b", "--pp", "4,2", "--chunks", "2,4",
                     "--microbatches", "4,8", "--tp", "2,1", "--dp", "1,2", "--p2p", "split,merged",
                     "--balance", "count,measured", "--layers", "8,24"});
  EXPECT_THAT(options.kinds,
              ElementsAre(ScheduleKind::gpipe, ScheduleKind::zb_v, ScheduleKind::one_f_one_b));
  EXPECT_THAT(pp_degrees(options, 1, 1, 9), ElementsAre(2, 4));
  EXPECT_THAT(options.chunks, ElementsAre(2, 4));
  EXPECT_THAT(options.micro, ElementsAre(4, 8));
  EXPECT_THAT(options.base.tp, ElementsAre(1, 2));
  EXPECT_THAT(options.dp, ElementsAre(1, 2));
  EXPECT_THAT(options.p2p, ElementsAre(Lowering::split, Lowering::merged));
  EXPECT_THAT(options.balance, ElementsAre(Balance::count, Balance::measured));
  EXPECT_THAT(options.base.layers, ElementsAre(8, 24));
}

TEST(PipelineOptions, AModelKeepsItsShape) {
  const Options options = parse_options({"--model", "llama3-8b"});
  EXPECT_THAT(options.base.layers, IsEmpty());
  EXPECT_THAT(options.base.vocab, IsEmpty());
}

TEST(PipelineOptions, ASplitTakesThePlaceOfABalance) {
  const Options options = parse_options({"--split", "3,3,2"});
  EXPECT_THAT(options.split, ElementsAre(3, 3, 2)) << "equal numbers stay";
  EXPECT_THAT(options.balance, ElementsAre(Balance::given));
}

TEST(PipelineOptions, RanksDefaultToWhatTheDegreesNeed) {
  const auto ranks = [](const std::vector<std::string>& arguments) {
    return launch_request(parse_options(arguments)).default_ranks;
  };
  EXPECT_EQ(ranks({"--pp", "3,2", "--tp", "2", "--dp", "1,2"}), 12);
  EXPECT_EQ(ranks({}), default_ranks());
  EXPECT_EQ(ranks({"--tp", "64"}), 64);
  EXPECT_EQ(launch_request(parse_options({})).program, "shardmark-pp");
}

TEST(PipelineOptions, BadValuesAreNamedWithTheRuleAndWhatWorks) {
  const auto expect = [](const std::vector<std::string>& arguments, const auto& matcher) {
    EXPECT_THAT(problem_of(arguments), matcher) << testing::PrintToString(arguments);
  };
  expect({"--schedule", "1f2b"},
         AllOf(HasSubstr("gpipe, 1f1b, interleaved"), HasSubstr("did you mean 1f1b?")));
  expect({"--pp", "0"}, HasSubstr("at least 1"));
  expect({"--microbatches", "0"}, HasSubstr("at least 1"));
  expect({"--chunks", "two"}, HasSubstr("--chunks: 'two' is not a whole number"));
  expect({"--split", "9,0"}, HasSubstr("--split: '0' must be at least 1"));
  expect({"--p2p", "both"}, HasSubstr("split, merged"));
  expect({"--balance", "cost"}, HasSubstr("count, measured"));
  expect({"--print-schedule", "text"}, HasSubstr("grid, csv, svg"));
  expect({"--model", "llama4"}, HasSubstr("llama"));
  expect({"--phase", "step"}, HasSubstr("unknown option --phase"));
  expect({"--scheduel", "1f1b"}, HasSubstr("did you mean --schedule?"));
}

TEST(PipelineOptions, ContradictionsAreRefused) {
  EXPECT_THAT(problem_of({"--resume"}), HasSubstr("--out DIR"));
  EXPECT_THAT(problem_of({"--split", "4,4", "--balance", "measured"}),
              HasSubstr("leave out --balance"));
  EXPECT_THAT(problem_of({"--print-schedule", "grid", "--out", "o"}), HasSubstr("--out"));
  EXPECT_THAT(problem_of({"--print-schedule", "grid", "--dry-run"}), HasSubstr("--dry-run"));
  EXPECT_THAT(problem_of({"--print-schedule", "grid", "--predict", "h100-sxm-8"}),
              HasSubstr("--predict"));
  EXPECT_THAT(problem_of({"--schedule", "1f1b", "--fit"}), HasSubstr("--fit is for zb-h1"));
  EXPECT_THAT(problem_of({"--memory-limit", "4"}), HasSubstr("--memory-limit is for zb-h1"));
}

TEST(PipelineOptions, HelpIsTheGoldenText) {
  expect_golden_help(Tool::pp, SHARDMARK_SOURCE_DIR, parse_options({"--help"}).base.print);
}

TEST(PipelineOptions, HelpShowsAnExampleOfEveryOption) {
  expect_example_of_every_option(parse_options({"-h"}).base.print);
}

TEST(PipelineOptions, SchedulesAreListedWithWhatTheyTrade) {
  EXPECT_THAT(parse_options({"--list-schedules"}).base.print,
              AllOf(HasSubstr("1f1b: the bubble of gpipe"), HasSubstr("dualpipe-v: ")));
}

}  // namespace
}  // namespace shardmark::bench::pp
