// Schedules as text: printed, loaded again, and refused when they are broken.

#include "bench/harness/csv.hpp"
#include "bench/pipeline/print.hpp"
#include "bench/pipeline/schedules.hpp"
#include "bench/pipeline/sweep.hpp"
#include "layers/pipeline/render.hpp"
#include "tests/bench/scratch.hpp"
#include "tests/support/refusal.hpp"

#include <gmock/gmock.h>

namespace shardmark::bench::pp {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string printed(std::vector<std::string> arguments, const std::string& as, int world_size = 2) {
  arguments.insert(arguments.end(), {"--print-schedule", as});
  return print_schedules(parse_options(arguments), world_size);
}

std::string written(const std::string& text) {
  std::string path = scratch_folder() + "/mine.csv";
  write_whole(path, text);
  return path;
}

/// The schedule that the only case of a sweep runs.
pipeline::Schedule schedule_of(const std::vector<std::string>& arguments, int world_size) {
  pipeline::Schedule schedule =
      *expand(parse_options(arguments), world_size).cases.front().layer.pipeline.schedule;
  schedule.name.clear();
  return schedule;
}

TEST(PipelinePrint, EveryScheduleLoadsAgainAndRunsTheSame) {
  int num_schedules = 0;
  for (const pipeline::ScheduleFacts& facts : pipeline::schedules())
    for (const int pp : {2, 3, 4}) {
      if (facts.kind == pipeline::ScheduleKind::dualpipe && pp == 3) continue;
      const std::vector<std::string> arguments{"--schedule",     std::string{facts.name},
                                               "--pp",           std::to_string(pp),
                                               "--microbatches", "12",
                                               "--layers",       "24"};
      SCOPED_TRACE(message(facts.name, " pp ", pp));
      for (const std::string p2p : {"split", "merged"}) {
        const std::string path = written(printed(arguments, "csv"));
        std::vector<std::string> made = arguments;
        made.insert(made.end(), {"--p2p", p2p});
        const std::vector<std::string> loaded{"--schedule-file", path, "--p2p", p2p,
                                              "--layers",        "24"};
        EXPECT_EQ(schedule_of(made, pp), schedule_of(loaded, pp));
        // With its messages it needs no --p2p.
        const std::string lowered = written(printed(made, "csv"));
        EXPECT_EQ(schedule_of(made, pp),
                  schedule_of({"--schedule-file", lowered, "--layers", "24"}, pp));
      }
      ++num_schedules;
    }
  EXPECT_EQ(num_schedules, 29);
}

TEST(PipelinePrint, AFileSaysForHowManyRanksAndMicroBatchesItIs) {
  const std::string path = written(printed({"--pp", "3", "--microbatches", "5"}, "csv"));
  const Options options = parse_options({"--schedule-file", path});
  EXPECT_EQ(launch_request(options).default_ranks, 3);
  const Sweep sweep = expand(options, 3);
  ASSERT_EQ(sweep.cases.size(), 1U);
  EXPECT_EQ(describe_pipeline(sweep.cases.front()), "mine.csv pp 3 m 5");
  const auto refusal = [&](const std::string& option, const std::string& value) {
    return test::refusal([&] {
      return expand(parse_options({"--schedule-file", path, option, value}), 3);
    });
  };
  EXPECT_EQ(refusal("--pp", "2"),
            "pp 2: mine.csv is a schedule for 3 ranks; leave out --pp, or give --pp 3");
  EXPECT_EQ(refusal("--microbatches", "4"),
            "4 micro-batches: mine.csv is a schedule for 5; leave out --microbatches, or give "
            "--microbatches 5");
}

TEST(PipelinePrint, AFileRunsBesideSchedulesByName) {
  const std::string path = written(printed({"--pp", "2", "--microbatches", "4"}, "csv"));
  const Sweep sweep = expand(parse_options({"--schedule-file", path, "--schedule", "gpipe"}), 2);
  ASSERT_EQ(sweep.cases.size(), 2U);
  EXPECT_EQ(describe_pipeline(sweep.cases[0]), "gpipe pp 2 m 4");
  EXPECT_EQ(describe_pipeline(sweep.cases[1]), "mine.csv pp 2 m 4");
}

TEST(PipelinePrint, AFileWithMessagesIsNotLoweredOtherwise) {
  const std::string path =
      written(printed({"--pp", "2", "--microbatches", "2", "--p2p", "merged"}, "csv"));
  EXPECT_THAT(test::refusal([&] {
                return parse_options({"--schedule-file", path, "--p2p", "split"});
              }),
              HasSubstr("mine.csv has its messages already, merged; leave out --p2p"));
}

/// Three ranks, two micro-batches; each file differs from a right one in one thing.
struct Broken {
  const char *text, *reason, *marked;
};
const Broken broken_files[] = {
    {"0F0,0F1,0B0,0B1\n1F0,1B1,1F1,1B0\n2F0,2B0,2F1,2B1\n",
     "rank 1 step 1: 1B1 comes before its forward 1F1 at step 2", ">1B1<"},
    {"0F0,0F1,0B0,0B1\n1F0,1B0,1B1\n2F0,2B0,2F1,2B1\n", "rank 1: 1F1 is missing", nullptr},
    {"0F0,0F1,0B0\n1F0,1F1,1B0,1B1\n2F0,2B0,2F1,2B1\n", "rank 0: 0B1, or 0I1 and 0W1, is missing",
     nullptr},
    {"0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1I1\n2F0,2B0,2F1,2B1\n", "rank 1: 1W1 is missing", nullptr},
    {"0F0,0F1,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n2F0,2B0,2F1,2B1\n",
     "rank 0 step 2: 0F1 is there twice: also at rank 0 step 1", ">0F1<"},
    {"0F0,0F1,0B0,0B1,1B1\n1F0,1F1,1B0\n2F0,2B0,2F1,2B1\n",
     "rank 0 step 4: 1B1 is on the wrong rank: stage 1 lives on rank 1", ">1B1<"},
    {"0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n2F0,2B0,2F1,2B1\n",
     "deadlock: rank 0 step 1 (0B0) waits for rank 1 step 2 (1B0), that for rank 1 step 1 (1F1), "
     "that for rank 0 step 2 (0F1), and that for the first again",
     ">0B0<"},
    {"0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1W1,1I1\n2F0,2B0,2F1,2B1\n",
     "rank 1 step 3: 1W1 comes before its input gradient 1I1 at step 4", ">1W1<"},
    {"0F0,0F1,0B0,0B1\n\n2F0,1F0,2B0,1B0,2F1,1F1,2B1,1B1\n",
     "rank 1: there is no stage on this rank", nullptr},
    {"0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1SEND_F0,1RECV_B0,1B0,1SEND_B0\n"
     "2F0,2B0,2SEND_B0\n",
     "rank 2: 2RECV_F0 is missing", nullptr},
    {"#shardmark lowering=merged\n"
     "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1RECV_B0,1B0,1SEND_B0,1SEND_F0\n"
     "2RECV_F0,2F0,2B0,2SEND_B0\n",
     "deadlock: ", "<"},
    {"0F0,0F1,0B0,0B1\n1F0,1F1,1Q0,1B1\n2F0,2B0,2F1,2B1\n",
     "line 2, cell 3: '1Q0' is not an action", nullptr},
};

TEST(PipelinePrint, BrokenFilesAreRefusedWithTheReasonAndTheStepMarked) {
  for (const Broken& broken : broken_files) {
    const std::string path = written(broken.text);
    const std::string problem = test::refusal([&] {
      return parse_options({"--schedule-file", path});
    });
    EXPECT_THAT(problem, AllOf(HasSubstr("--schedule-file " + path), HasSubstr(broken.reason)))
        << broken.text;
    if (broken.marked != nullptr) {
      EXPECT_THAT(problem, AllOf(HasSubstr("\nrank 0"), HasSubstr(broken.marked)));
    }
  }
}

TEST(PipelinePrint, AMissingFileIsNamed) {
  EXPECT_THAT(test::refusal([] {
                return parse_options({"--schedule-file", "/nowhere/x.csv"});
              }),
              AllOf(HasSubstr("--schedule-file"), HasSubstr("cannot read")));
}

TEST(PipelinePrint, ALongBrokenFileIsNotDrawn) {
  std::string text = printed({"--pp", "2", "--microbatches", "300"}, "csv");
  text.replace(text.find("0F7,"), 4, "");
  const std::string path = written(text);
  const std::string problem = test::refusal([&] {
    return parse_options({"--schedule-file", path});
  });
  EXPECT_THAT(problem, HasSubstr("rank 0: 0F7 is missing"));
  EXPECT_LT(problem.size(), 2000U);
}

TEST(PipelinePrint, AGridShowsWhoDoesWhatWhen) {
  EXPECT_EQ(printed({"--pp", "3", "--microbatches", "3"}, "grid"),
            "1f1b, 3 ranks, 3 micro-batches: bubble 40.0 % of the window at unit times, at most 3 "
            "activations at once\n" +
                pipeline::to_grid(pipeline::generate(pipeline::ScheduleKind::one_f_one_b, {3, 3})));
}

TEST(PipelinePrint, GridsOfASweepNameThoseThatAreNotAllowed) {
  const std::string text = printed(
      {"--schedule", "1f1b,dualpipe", "--pp", "3", "--microbatches", "8", "--chunks", "1,2"},
      "grid");
  EXPECT_THAT(text, HasSubstr("1f1b, 3 ranks, 8 micro-batches: bubble 20.0 %"));
  EXPECT_THAT(text, HasSubstr("dualpipe, 3 ranks, 8 micro-batches: none: schedule dualpipe: 3"));
  EXPECT_EQ(text.find("1f1b"), text.rfind("1f1b")) << "chunks mean nothing to it";
}

TEST(PipelinePrint, OneScheduleIsAFileAndSeveralAreNot) {
  EXPECT_THAT(test::refusal([] {
                return printed({"--schedule", "1f1b,gpipe"}, "csv");
              }),
              HasSubstr("print one schedule, and these are 2: 1f1b, 2 ranks, 8 micro-batches; "
                        "gpipe, 2 ranks, 8 micro-batches; give one value"));
  EXPECT_THAT(test::refusal([] {
                return printed({"--schedule", "dualpipe", "--pp", "3"}, "grid");
              }),
              HasSubstr("the number must be even"));
  EXPECT_THAT(printed({"--pp", "3"}, "svg"), testing::StartsWith("<svg"));
}

}  // namespace
}  // namespace shardmark::bench::pp
