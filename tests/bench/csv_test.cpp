#include "bench/harness/csv.hpp"

#include "core/error.hpp"

#include "scratch.hpp"
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>

namespace shardmark::bench {
namespace {

using testing::HasSubstr;

template <class Kind, class Action>
std::string problem_of(const Action& action) {
  try {
    action();
  } catch (const Kind& error) {
    return error.what();
  }
  return "no error";
}

TEST(Csv, WhatIsWrittenIsReadBack) {
  const std::vector<std::string> cells{"plain", "", "a,b", "say \"no\"", "two\nlines"};
  EXPECT_EQ(csv_line(cells), "plain,,\"a,b\",\"say \"\"no\"\"\",\"two\nlines\"\n");
  EXPECT_THAT(parse_csv(csv_line(cells) + "x\n"),
              testing::ElementsAre(cells, std::vector<std::string>{"x"}));
}

TEST(Csv, HalfARowIsNotARow) { EXPECT_THAT(parse_csv("a,b\n1,2\n3,"), testing::SizeIs(2)); }

TEST(CsvFile, ResumeDropsHalfARowAndGoesOn) {
  const std::string path = scratch_folder() + "/results.csv";
  std::ofstream{path} << "a,b\n1,2\n3,";
  CsvFile{path, {"a", "b"}, true}.append({{"5", "6"}});
  EXPECT_EQ(read_file(path), "a,b\n1,2\n5,6\n");
}

TEST(CsvFile, ResumeRefusesOtherColumns) {
  const std::string path = scratch_folder() + "/results.csv";
  std::ofstream{path} << "a,c\n1,2\n";
  EXPECT_THAT(problem_of<InputError>([&] {
                CsvFile{path, {"a", "b"}, true};
              }),
              testing::AllOf(HasSubstr(path), HasSubstr("other columns")));
  EXPECT_EQ(read_file(path), "a,c\n1,2\n");
}

TEST(CsvFile, WithoutResumeStartsAgain) {
  const std::string path = scratch_folder() + "/results.csv";
  std::ofstream{path} << "a,c\n1,2\n";
  { const CsvFile file{path, {"a", "b"}, false}; }
  EXPECT_EQ(read_file(path), "a,b\n");
}

TEST(CsvFile, AMissingFolderIsBadInput) {
  EXPECT_THAT(problem_of<InputError>([] {
                CsvFile{"/nowhere/x.csv", {"a"}, false};
              }),
              HasSubstr("/nowhere/x.csv"));
}

TEST(CsvFile, ADiskThatIsFullNamesTheFile) {
  EXPECT_THAT(problem_of<Error>([] {
                CsvFile{"/dev/full", {"a"}, false};
              }),
              testing::AllOf(HasSubstr("/dev/full"), HasSubstr("No space left")));
}

TEST(CsvFile, ARowThatDoesNotFitLeavesTheRowsBefore) {
  const std::string path = scratch_folder() + "/results.csv";
  CsvFile file{path, {"a", "b"}, false};
  file.append({{"1", "2"}});
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit tight{10, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &tight);
  const std::string problem = problem_of<Error>([&] { file.append({{"3", "44444444"}}); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(problem, testing::AllOf(HasSubstr(path), HasSubstr("all rows before are complete")));
  EXPECT_EQ(read_file(path), "a,b\n1,2\n");
  file.append({{"5", "6"}});
  EXPECT_EQ(read_file(path), "a,b\n1,2\n5,6\n");
}

}  // namespace
}  // namespace shardmark::bench
