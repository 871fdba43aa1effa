#include "bench/harness/options.hpp"

#include "tests/bench/help.hpp"
#include "tests/support/refusal.hpp"

#include <gmock/gmock.h>

namespace shardmark::bench {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string problem_of(const std::vector<std::string>& arguments) {
  return test::refusal([&] { return parse_options(arguments); });
}

TEST(Options, DefaultsRunOneBlock) {
  const Options options = parse_options({});
  EXPECT_THAT(options.blocks, ElementsAre(BlockKind::block));
  EXPECT_THAT(options.phases, ElementsAre(Phase::step));
  EXPECT_THAT(options.sequence_parallel, ElementsAre(false));
  EXPECT_THAT(tp_degrees(options, 2), ElementsAre(1, 2));
  EXPECT_THAT(tp_degrees(options, 6), ElementsAre(1, 2, 4, 6));
}

TEST(Options, ListsSweepAndKeepEqualValuesOnce) {
  const Options options =
      parse_options({"--hidden", "1k,2k,1024", "--tp", "4,1,2", "--sequence-parallel", "off,on",
                     "--phase", "forward,step", "--dtype", "f32,bf16", "--block", "mlp,model"});
  EXPECT_THAT(options.hidden, ElementsAre(1024, 2048));
  EXPECT_THAT(tp_degrees(options, 2), ElementsAre(1, 2, 4));
  EXPECT_THAT(options.sequence_parallel, ElementsAre(false, true));
  EXPECT_THAT(options.phases, ElementsAre(Phase::forward, Phase::step));
  EXPECT_THAT(options.dtypes, ElementsAre(DType::f32, DType::bf16));
  EXPECT_THAT(options.blocks, ElementsAre(BlockKind::mlp, BlockKind::model));
}

TEST(Options, AlgorithmsAreByAxis) {
  const Options options = parse_options({"--algorithm", "tp=ring,dp=native"});
  EXPECT_EQ(options.runner.plans.algorithms.at(Axis::tp), "ring");
  EXPECT_EQ(options.runner.plans.algorithms.at(Axis::dp), "native");
  EXPECT_THAT(problem_of({"--algorithm", "tp=fast"}),
              HasSubstr("--algorithm: there is no algorithm 'fast'; there is native, auto, ring"));
  EXPECT_THAT(problem_of({"--algorithm", "ring"}), HasSubstr("'ring' is not AXIS=ALGORITHM"));
  EXPECT_THAT(problem_of({"--algorithm", "tp=auto"}), HasSubstr("add --tuning FILE"));
  EXPECT_THAT(problem_of({"--tuning", "/nowhere/choice.txt"}), HasSubstr("cannot read"));
}

TEST(Options, KIs1024) {
  EXPECT_THAT(parse_options({"--seq", "1k,2K,1m"}).seq, ElementsAre(1024, 2048, 1048576));
}

TEST(Options, BadValuesAreNamedWithTheRuleAndWhatWorks) {
  const auto expect = [](const std::vector<std::string>& arguments, const auto& matcher) {
    EXPECT_THAT(problem_of(arguments), matcher) << testing::PrintToString(arguments);
  };
  expect({"--hidden", "0"}, AllOf(HasSubstr("--hidden: '0'"), HasSubstr("at least 1")));
  expect({"--hidden", "-512"}, AllOf(HasSubstr("'-512'"), HasSubstr("at least 1")));
  expect({"--hidden", "99999999999999999999"}, HasSubstr("largest value is 2147483647"));
  expect({"--hidden", "4000m"}, HasSubstr("is too large"));
  expect({"--hidden", "1.5k"}, HasSubstr("try 512, 1k (= 1024)"));
  expect({"--hidden", "wide"}, HasSubstr("'wide' is not a whole number"));
  expect({"--hidden", ""}, HasSubstr("empty element"));
  expect({"--tp", "1,,2"}, HasSubstr("empty element"));
  expect({"--tp", "0"}, HasSubstr("at least 1"));
  expect({"--ranks", "0"}, HasSubstr("at least 1"));
  expect({"--seed", "-1"}, HasSubstr("from 0 to 2^64"));
  expect({"--max-time", "inf"}, HasSubstr("is not a number"));
  expect({"--max-time", "-1"}, HasSubstr("at least 0"));
  expect({"--peak-tflops", "0"}, HasSubstr("above 0"));
  expect({"--inject-fault", "explode"}, HasSubstr("explode"));
  expect({"--backend", "gpu"}, HasSubstr("auto, cpu, cuda, record"));
  expect({"--inject-fault", "corrupt:rank=1:op=0"}, HasSubstr("shardmark-collectives"));
}

TEST(Options, UnknownNamesSuggestTheNearest) {
  EXPECT_THAT(problem_of({"--hiden", "4"}), HasSubstr("did you mean --hidden?"));
  EXPECT_THAT(problem_of({"--sequence-paralell=on"}),
              HasSubstr("did you mean --sequence-parallel"));
  EXPECT_THAT(
      problem_of({"--block", "linear-colum"}),
      AllOf(HasSubstr("linear-column, linear-row, mlp"), HasSubstr("did you mean linear-column?")));
  EXPECT_THAT(problem_of({"--model", "llama-3-8b"}), HasSubstr("did you mean llama3-8b?"));
  EXPECT_THAT(problem_of({"--model", "unheard-of"}), HasSubstr("--list-models"));
  EXPECT_THAT(problem_of({"--dtype", "fp16"}), HasSubstr("f32, bf16"));
  EXPECT_THAT(problem_of({"2"}), HasSubstr("lists are written without spaces"));
}

TEST(Options, ContradictionsAreRefused) {
  EXPECT_THAT(problem_of({"--resume"}), HasSubstr("--out DIR"));
  EXPECT_THAT(problem_of({"--dump", "d", "--dry-run"}), HasSubstr("--dry-run"));
  EXPECT_THAT(problem_of({"--dump", "d", "--out", "o"}), HasSubstr("leave out one"));
  EXPECT_THAT(problem_of({"--dry-run", "--out", "o"}),
              HasSubstr("--dry-run makes no rows that --out could keep"));
  EXPECT_THAT(problem_of({"--dry-run", "--out", "o", "--resume"}), HasSubstr("--dry-run"));
  EXPECT_THAT(problem_of({"--hidden", "1k", "--hidden", "2k"}),
              HasSubstr("--hidden is given more than once; give one value, or one list"));
  EXPECT_THAT(problem_of({"--hidden"}), HasSubstr("--hidden"));
}

TEST(Options, HelpIsTheGoldenText) {
  expect_golden_help(Tool::tp, SHARDMARK_SOURCE_DIR, parse_options({"--help"}).print);
}

TEST(Options, HelpShowsAnExampleOfEveryOption) {
  expect_example_of_every_option(parse_options({"-h"}).print);
}

TEST(LaunchPlan, PicksTheTransport) {
  const auto plan = [](const std::vector<std::string>& arguments, const std::string& launcher) {
    return plan_launch(launch_request(parse_options(arguments)), launcher, true);
  };
  EXPECT_EQ(plan({}, "mpirun (PMI_SIZE=2)").transport, TransportKind::mpi);
  EXPECT_EQ(plan({"--ranks", "3"}, "").ranks, 3);
  EXPECT_EQ(plan({"--tp", "1,4"}, "").ranks, 4);
  EXPECT_EQ(plan({"--transport", "mpi"}, "").transport, TransportKind::mpi);
}

TEST(LaunchPlan, RefusesWhatWouldRunCopies) {
  const auto problem = [](const std::vector<std::string>& arguments, const std::string& launcher,
                          bool have_mpi) {
    return test::refusal(
        [&] { return plan_launch(launch_request(parse_options(arguments)), launcher, have_mpi); });
  };
  EXPECT_THAT(problem({"--transport", "threads"}, "mpirun (PMI_SIZE=2)", true),
              AllOf(HasSubstr("mpirun (PMI_SIZE=2)"), HasSubstr("leave out --transport threads")));
  EXPECT_THAT(problem({}, "mpirun (PMI_SIZE=2)", false),
              AllOf(HasSubstr("built without MPI"), HasSubstr("--transport threads --ranks N")));
  EXPECT_THAT(problem({"--transport", "mpi"}, "", false), HasSubstr("built without MPI"));
  EXPECT_THAT(problem({"--ranks", "4"}, "mpirun (PMI_SIZE=2)", true), HasSubstr("mpirun -n 4"));
}

}  // namespace
}  // namespace shardmark::bench
