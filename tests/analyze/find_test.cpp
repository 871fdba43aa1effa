// Which files an input means, which reader takes them, and reading several at a time.

#include "profiler/read/find.hpp"

#include "core/error.hpp"
#include "profiler/read/read.hpp"
#include "tests/analyze/nsys_file.hpp"
#include "tests/bench/scratch.hpp"

#include <gmock/gmock.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

namespace shardmark {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* trace_text =
    R"({"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel", "name": "gemm",
 "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {"device": 0, "stream": 7}}]})";

class Find : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text = trace_text) const {
    const std::filesystem::path path = std::filesystem::path{folder} / name;
    std::filesystem::create_directories(path.parent_path());
    if (path.extension() == ".gz") {
      const gzFile out = gzopen(path.c_str(), "wb");
      gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
      gzclose(out);
    } else {
      std::ofstream{path, std::ios::binary} << text;
    }
    return path.string();
  }
  std::string write_export(const std::string& name) const {
    NsysFile file{folder + '/' + name};
    file.create_tables().kernel(1, 2, file.text("gemm"));
    return file.path();
  }
  /// Paths below the test's folder.
  std::vector<std::string> found(const std::vector<std::string>& inputs) const {
    std::vector<std::string> names;
    for (const auto& path : find_recordings(inputs))
      names.push_back(std::filesystem::relative(path, folder).string());
    return names;
  }
  static std::string error_of(const std::vector<std::string>& inputs) {
    try {
      (void)find_recordings(inputs);
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  }
  std::string folder{bench::scratch_folder()};
};

TEST_F(Find, TheFormatIsInTheFirstBytes) {
  EXPECT_EQ(format_of(write("a.sqlite")), RecordingFormat::kineto);
  EXPECT_EQ(format_of(write("b.txt", "\xef\xbb\xbf \n [")), RecordingFormat::kineto);
  EXPECT_EQ(format_of(write("c.gz")), RecordingFormat::kineto);
  EXPECT_EQ(format_of(write_export("d.json")), RecordingFormat::nsys);
  EXPECT_EQ(format_of(write("e.json", "ts,dur\n1,2\n")), RecordingFormat::unknown);
  EXPECT_EQ(format_of(write("f.json", "")), RecordingFormat::unknown);
}

TEST_F(Find, NamesTellRankAndWorld) {
  const auto named = [](const char* name) {
    const NamedRank rank = rank_of_name(name);
    return std::pair{rank.rank, rank.world_size};
  };
  EXPECT_EQ(named("rank0.json.gz"), std::pair(0, 0));
  EXPECT_EQ(named("trace_Rank-12.json"), std::pair(12, 0));
  EXPECT_EQ(named("a_rank_3_of_8.json"), std::pair(3, 8));
  EXPECT_EQ(named("a_rank34of300.json"), std::pair(34, 300));
  EXPECT_EQ(named("rank1/worker7/trace.json"), std::pair(7, 0));
  EXPECT_EQ(named("rank5/trace.json"), std::pair(5, 0));
  EXPECT_EQ(named("rank1_of_worker2.json"), std::pair(1, 0));
  EXPECT_EQ(named("rank8of4.json"), std::pair(8, 0));
  EXPECT_EQ(named("rank99999999999999.json"), std::pair(-1, 0));
  EXPECT_EQ(named("ranking.json"), std::pair(-1, 0));
  EXPECT_EQ(named("h100x2_trace.json"), std::pair(-1, 0));
}

TEST_F(Find, AFolderMeansItsRecordingsByRank) {
  write("rank10.json");
  write("rank9.json.gz");
  write_export("rank2.sqlite");
  write("settings.json", R"({"model": "7b"})");
  write("notes.txt", "nothing");
  write("rank1.json.part");
  write("rank1.json.old");
  EXPECT_THAT(found({folder}), ElementsAre("rank2.sqlite", "rank9.json.gz", "rank10.json"));
}

TEST_F(Find, FilesWithoutRanksComeByNumbersInTheirNames) {
  for (const char* name : {"host10_2.json", "host9_1.json", "host10_1.json"}) write(name);
  EXPECT_THAT(found({folder}), ElementsAre("host9_1.json", "host10_1.json", "host10_2.json"));
}

TEST_F(Find, AFolderOfFoldersMeansTheirs) {
  write("rank1/trace.json");
  write("rank0/trace.json");
  EXPECT_THAT(found({folder}), ElementsAre("rank0/trace.json", "rank1/trace.json"));
}

TEST_F(Find, ARunFolderMeansItsTracesInTheOrderOfTheLaunches) {
  write("run/run.json", R"({"program": "shardmark-tp"})");
  for (const char* name :
       {"run/trace-2.json.gz", "run/trace.json.gz", "run/trace-10.json.gz", "run/other.json"})
    write(name);
  EXPECT_THAT(found({folder + "/run"}), ElementsAre("run/trace.json.gz", "run/trace-2.json.gz"));
  write("run/trace-3.json.gz");
  EXPECT_THAT(found({folder + "/run"}),
              ElementsAre("run/trace.json.gz", "run/trace-2.json.gz", "run/trace-3.json.gz"));
}

TEST_F(Find, PatternsMeanFilesAndFolders) {
  write("a/rank1.json");
  write("b/rank0.json");
  write("c/else.json");
  EXPECT_THAT(found({folder + "/[ab]"}), ElementsAre("b/rank0.json", "a/rank1.json"));
  EXPECT_THAT(found({folder + "/*/*.json"}),
              ElementsAre("b/rank0.json", "a/rank1.json", "c/else.json"));
  EXPECT_THAT(found({folder + "/{a,c}/*.json"}), ElementsAre("a/rank1.json", "c/else.json"));
}

TEST_F(Find, AFileThatExistsIsNoPattern) {
  const std::string file = write("trace[1].json");
  EXPECT_THAT(found({file}), ElementsAre("trace[1].json"));
}

TEST_F(Find, AFileOfTwoInputsIsReadOnce) {
  const std::string file = write("rank0.json");
  write("rank1.json");
  EXPECT_THAT(found({folder + "/rank1.json", folder}), ElementsAre("rank1.json", "rank0.json"));
}

TEST_F(Find, InputsThatMeanNothingAreRefused) {
  EXPECT_THAT(error_of({}), HasSubstr("no input"));
  EXPECT_THAT(error_of({folder}), AllOf(HasSubstr("holds no recording"), HasSubstr(".sqlite")));
  EXPECT_THAT(error_of({folder + "/missing.json"}), HasSubstr("there is no file or folder"));
  EXPECT_THAT(error_of({folder + "/*.json"}), HasSubstr("nothing matches it as a pattern"));
}

TEST_F(Find, SeveralFilesAreReadInOrderAndErrorsAreCollected) {
  std::vector<std::filesystem::path> files;
  for (int i = 0; i < 20; ++i) files.emplace_back(write(message("rank", i, "of32.json")));
  files.insert(files.begin() + 3, write("broken.json", "no JSON"));
  files.insert(files.begin() + 7, write("empty.json", ""));
  files.insert(files.begin() + 9, folder + "/missing.json");
  files.insert(files.begin() + 11, write("a.nsys-rep", "\x01\x02"));
  files.insert(files.begin() + 12, write("b.sqlite.gz", std::string{"SQLite format 3\0", 16}));
  for (const int num_threads : {-1, 1, 2, 7, 100}) {
    std::vector<std::string> errors;
    const std::vector<Timeline> timelines = read_all(files, num_threads, errors);
    std::vector<int> ranks, expected;
    for (const Timeline& timeline : timelines) {
      ranks.push_back(timeline.rank);
      EXPECT_EQ(timeline.world_size, 32);
    }
    for (int i = 0; i < 20; ++i) expected.push_back(i);
    EXPECT_EQ(ranks, expected);
    EXPECT_THAT(errors, ElementsAre(HasSubstr("broken.json is no recording"), HasSubstr("is empty"),
                                    HasSubstr("missing.json is no file"),
                                    HasSubstr("export it with `nsys export --type sqlite`"),
                                    HasSubstr("unpack it first")));
  }
}

TEST_F(Find, NoFilesGiveNoTimelines) {
  std::vector<std::string> errors;
  EXPECT_THAT(read_all({}, 4, errors), IsEmpty());
  EXPECT_THAT(errors, IsEmpty());
}

}  // namespace
}  // namespace shardmark
