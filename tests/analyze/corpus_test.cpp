// Recordings of others against tables of exact sums over them: not part of this repository.

#include "bench/harness/csv.hpp"
#include "core/error.hpp"
#include "profiler/account.hpp"
#include "profiler/read/read.hpp"

#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

namespace shardmark {
namespace {

using testing::ContainsRegex;

using Rows = std::map<std::string, std::string>;  ///< "set,rank,window,rule" -> the rest

std::string format_us(std::int64_t ns) {
  std::string digits = std::to_string(ns % 1000);
  digits.insert(0, 3 - digits.size(), '0');
  return std::to_string(ns / 1000) + '.' + digits;
}
std::string percent(std::int64_t part_ns, std::int64_t whole_ns) {
  if (whole_ns == 0) return "nan";
  char text[64];
  std::snprintf(text, sizeof text, "%.4f",
                static_cast<double>(100 * part_ns) / static_cast<double>(whole_ns));
  return text;
}

std::string row_of(const Account& a) {
  std::string row = message(a.num_kernels, ',', a.num_comm, ',', a.num_copies);
  for (const std::int64_t ns : {a.span_ns, a.busy_ns, a.idle_ns, a.compute_ns, a.comm_ns, a.copy_ns,
                                a.exposed_comm_ns, a.overlapped_ns, a.exposed_copy_ns})
    row += ',' + format_us(ns);
  row += ',' + (a.comm_ns == 0 ? std::string{} : percent(a.overlapped_ns, a.comm_ns));
  for (const std::int64_t ns : {a.idle_ns, a.compute_ns, a.exposed_comm_ns, a.exposed_copy_ns})
    row += ',' + percent(ns, a.span_ns);
  return message(row, ',', a.num_zero, ',', a.num_negative);
}

void add_rows(const Timeline& timeline, const std::string& set, int rank,
              const std::vector<Window>& windows, Rows& rows) {
  for (const auto& [rule, name] :
       {std::pair{CommRule::nccl, "nccl"}, std::pair{CommRule::wide, "wide"}}) {
    const std::vector<WorkClass> classes = classify(timeline, rule, {});
    for (const Window& window : windows) {
      const auto result = account(timeline, classes, window);
      if (!result) continue;
      EXPECT_EQ(result->residual_ns, 0) << set << ' ' << window.name;
      const bool is_new =
          rows.emplace(message(set, ',', rank, ',', window.name, ',', name), row_of(*result))
              .second;
      EXPECT_TRUE(is_new) << set << " has two windows " << window.name;
    }
  }
}

class AnalyzeCorpus : public testing::Test {
 protected:
  void SetUp() override {
    const char* corpus = std::getenv("SHARDMARK_TRACE_CORPUS");
    if (corpus == nullptr) GTEST_SKIP() << "SHARDMARK_TRACE_CORPUS names no folder of recordings";
    folder_ = std::string{corpus} + '/';
  }
  [[nodiscard]] Rows truth(const std::string& file) const {
    constexpr int key_cells = 4;
    Rows rows;
    std::vector<std::vector<std::string>> cells =
        bench::parse_csv(bench::read_file(folder_ + file));
    for (std::size_t i = 1; i < cells.size(); ++i) {
      std::string key, rest;
      for (std::size_t c = 0; c < cells[i].size(); ++c) {
        std::string& text = c < key_cells ? key : rest;
        if (c > 0 && c != key_cells) text += ',';
        text += cells[i][c];
      }
      rows.emplace(key, rest);
    }
    return rows;
  }
  static void expect_equal(const Rows& ours, const Rows& exact) {
    EXPECT_FALSE(exact.empty());
    for (const auto& [key, row] : exact) {
      const auto found = ours.find(key);
      if (found == ours.end())
        ADD_FAILURE() << "no row " << key;
      else
        EXPECT_EQ(found->second, row) << key;
    }
    for (const auto& [key, row] : ours)
      EXPECT_TRUE(exact.contains(key)) << key << " is not in the table: " << row;
  }

  std::string folder_;
};

TEST_F(AnalyzeCorpus, KinetoRowsAreThoseOfTheExactTable) {
  Rows ours;
  const auto files = bench::parse_csv(bench::read_file(folder_ + "files.csv"));
  for (std::size_t i = 1; i < files.size(); ++i) {
    const std::vector<Timeline> timelines = read_recording(folder_ + files[i][2]);
    ASSERT_EQ(timelines.size(), 1U) << files[i][2];
    EXPECT_EQ(timelines[0].cut, "") << files[i][2];
    add_rows(timelines[0], files[i][0], std::stoi(files[i][1]), windows_of(timelines[0]), ours);
  }
  expect_equal(ours, truth("truth/exact.csv"));
}

TEST_F(AnalyzeCorpus, NsightRowsAreThoseOfTheExactTable) {
  Rows ours;
  for (const auto& entry : std::filesystem::directory_iterator{folder_ + "nsys"}) {
    const std::string name = entry.path().filename();
    for (const Timeline& timeline : read_recording(entry.path()))
      if (!timeline.events.empty())
        add_rows(timeline, name, timeline.events.front().device, {{"trace", {}}}, ours);
  }
  expect_equal(ours, truth("truth/exact_nsys.csv"));
}

TEST_F(AnalyzeCorpus, MalformedFilesAreCutOrRefusedWithAPosition) {
  int num_files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator{folder_}) {
    if (!entry.path().filename().string().starts_with("malformed_")) continue;
    ++num_files;
    std::string reason;
    try {
      for (const Timeline& timeline : read_recording(entry.path())) reason += timeline.cut;
    } catch (const InputError& error) {
      reason = error.what();
    }
    EXPECT_THAT(reason, ContainsRegex("(byte|line) [0-9]+")) << entry.path();
  }
  EXPECT_GT(num_files, 0);
}

}  // namespace
}  // namespace shardmark
