#include "bench/analyze/outputs.hpp"

#include "tests/bench/scratch.hpp"
#include "tests/support/refusal.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

namespace shardmark::bench::analyze {
namespace {

using testing::AllOf;
using testing::HasSubstr;

namespace fs = std::filesystem;

/// A folder `traces` with one file, and what `check_outputs` says of outputs beside it.
class Outputs : public testing::Test {
 protected:
  Outputs() {
    fs::create_directory(traces_);
    std::ofstream{trace_} << "{}";
  }
  [[nodiscard]] std::string problem_of(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), trace_);
    return test::refusal([&] {
      check_outputs(parse_options(arguments), {trace_});
      return 0;
    });
  }

  std::string folder_{scratch_folder()}, traces_{folder_ + "/traces"};
  std::string trace_{traces_ + "/rank0.json.gz"};
};

TEST_F(Outputs, DoNotReplaceWhatIsRead) {
  for (const std::string option : {"--csv", "--json", "--merged-trace"})
    EXPECT_THAT(problem_of({option, trace_}),
                AllOf(HasSubstr(option), HasSubstr("is one of the files that are analysed")));
  EXPECT_THAT(problem_of({"--csv", traces_ + "/../traces/./rank0.json.gz"}),
              HasSubstr("is one of the files that are analysed"));
  fs::create_symlink(trace_, folder_ + "/link");
  EXPECT_THAT(problem_of({"--csv", folder_ + "/link"}), HasSubstr("is one of the files"));
  EXPECT_EQ(problem_of({"--csv", traces_ + "/rank0.csv"}), "accepted");
}

TEST_F(Outputs, AMergedTraceGetsAnEndingThatCounts) {
  EXPECT_THAT(problem_of({"--merged-trace", traces_ + "/rank0.json"}),
              HasSubstr("rank0.json.gz is one of the files that are analysed"));
}

TEST_F(Outputs, DoNotReplaceEachOther) {
  const std::string file = folder_ + "/x";
  EXPECT_THAT(problem_of({"--csv", file, "--json", file}),
              HasSubstr("--csv and --json both write " + file));
  EXPECT_THAT(problem_of({"--json", file + ".gz", "--merged-trace", file}),
              HasSubstr("both write"));
  EXPECT_THAT(problem_of({"--out", folder_ + "/out", "--csv", folder_ + "/out/results.csv"}),
              HasSubstr("cannot write"));
  fs::create_directory(folder_ + "/out");
  EXPECT_THAT(problem_of({"--out", folder_ + "/out", "--csv", folder_ + "/out/results.csv"}),
              HasSubstr("--out and --csv both write"));
  EXPECT_EQ(problem_of({"--csv", file, "--json", file + "y"}), "accepted");
}

TEST_F(Outputs, ThatCannotBeWrittenAreRefusedAtOnce) {
  EXPECT_THAT(problem_of({"--csv", folder_}), HasSubstr("is a folder"));
  EXPECT_THAT(problem_of({"--json", folder_ + "/no/x.json"}), HasSubstr("there is no folder"));
  EXPECT_THAT(problem_of({"--merged-trace", trace_ + "/x"}), HasSubstr("there is no folder"));
  EXPECT_THAT(problem_of({"--csv", "/dev/null"}), HasSubstr("no file that could be replaced"));
  EXPECT_THAT(problem_of({"--out", trace_}), HasSubstr("is no folder"));
  EXPECT_THAT(problem_of({"--out", trace_ + "/out"}), HasSubstr("is no folder"));
  EXPECT_EQ(problem_of({"--out", folder_ + "/a/b/c"}), "accepted");
}

TEST_F(Outputs, AFolderIsOursAndNotTheOneThatIsRead) {
  EXPECT_THAT(problem_of({"--out", traces_}), HasSubstr("is the folder that is analysed"));
  EXPECT_THAT(problem_of({"--out", traces_ + '/'}), HasSubstr("is the folder that is analysed"));
  const std::string out = folder_ + "/out";
  fs::create_directory(out);
  std::ofstream{out + "/run.json"} << R"({"program": "shardmark-tp"})";
  EXPECT_THAT(problem_of({"--out", out}), HasSubstr("holds a run of shardmark-tp"));
  std::ofstream{out + "/run.json"} << R"({"program": "shardmark-analyze"})";
  EXPECT_EQ(problem_of({"--out", out}), "accepted");
}

}  // namespace
}  // namespace shardmark::bench::analyze
