// A run of shardmark-tp: its timeline, read back, has the figures of its table.

#include "bench/harness/csv.hpp"
#include "profiler/account.hpp"
#include "profiler/impossible_times.hpp"
#include "profiler/read/read.hpp"
#include "tests/bench/scratch.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

namespace shardmark {
namespace {

using Cells = std::map<std::string, std::string>;

/// The rows of a run's results.csv that ran, by column.
std::vector<Cells> rows_that_ran(const std::string& folder) {
  const auto table = bench::parse_csv(bench::read_file(folder + "/results.csv"));
  std::vector<Cells> rows;
  for (std::size_t i = 1; i < table.size(); ++i) {
    Cells cells;
    for (std::size_t c = 0; c < table[i].size(); ++c) cells[table[0][c]] = table[i][c];
    if (cells["status"] == "ok") rows.push_back(std::move(cells));
  }
  return rows;
}

std::int64_t ns_of(const Cells& row, const std::string& column) {
  return std::llround(std::stod(row.at(column)) * 1e3);
}

/// Of each rank that took part in the N-th row.
std::vector<Account> accounts_of_step(const std::vector<Timeline>& timelines, std::size_t number,
                                      CommRule rule) {
  std::vector<Account> accounts;
  for (Timeline timeline : timelines) {
    correct_impossible_times(timeline);
    const auto classes = classify(timeline, rule, {});
    for (const Window& window : windows_of(timeline))
      if (window.name == "step:ProfilerStep#" + std::to_string(number))
        accounts.push_back(account(timeline, classes, window).value());
  }
  return accounts;
}

void expect_equal(const std::vector<Timeline>& timelines, const std::vector<Cells>& rows) {
  ASSERT_FALSE(rows.empty());
  for (const CommRule rule : {CommRule::automatic, CommRule::nccl, CommRule::wide})
    for (std::size_t number = 0; number < rows.size(); ++number) {
      SCOPED_TRACE("row " + std::to_string(number));
      const Cells& row = rows[number];
      const std::vector<Account> accounts = accounts_of_step(timelines, number, rule);
      ASSERT_FALSE(accounts.empty());
      // The row is of the rank with the most exposed communication.
      const Account& worst = *std::ranges::max_element(accounts, {}, &Account::exposed_comm_ns);
      EXPECT_EQ(worst.span_ns, ns_of(row, "window_us"));
      EXPECT_EQ(worst.compute_ns, ns_of(row, "comp_us"));
      EXPECT_EQ(worst.comm_ns, ns_of(row, "comm_us"));
      EXPECT_EQ(worst.exposed_comm_ns, ns_of(row, "exposed_comm_us"));
      EXPECT_EQ(worst.overlapped_ns, ns_of(row, "overlapped_us"));
      // Idle in the table is the executor's own; the residual is what it misses.
      EXPECT_EQ(worst.idle_ns, ns_of(row, "idle_us") + ns_of(row, "residual_us"));
      EXPECT_EQ(worst.residual_ns, 0);
    }
}

std::vector<Timeline> timelines_of(const std::string& folder) {
  std::vector<Timeline> all;
  for (const auto& file : find_recordings({folder}))
    for (Timeline& timeline : read_recording(file)) all.push_back(std::move(timeline));
  return all;
}

int run(const std::string& arguments, const std::string& folder) {
  const std::string command =
      std::string{SHARDMARK_TP} + ' ' + arguments + " --out " + folder + " > /dev/null";
  return std::system(command.c_str());
}

TEST(AccountOfARun, IsThatOfItsTableToTheNanosecond) {
  const std::string folder = bench::scratch_folder();
  ASSERT_EQ(run("--ranks 2 --tp 1,2 --block mlp --hidden 256 --seq 256 --overlap on --check off "
                "--max-time 0.05 --min-samples 2 --warmup 1 --peak-tflops 0.1",
                folder),
            0);
  const std::vector<Timeline> timelines = timelines_of(folder);
  ASSERT_EQ(timelines.size(), 2U);
  const std::vector<Cells> rows = rows_that_ran(folder);
  ASSERT_EQ(rows.size(), 2U);
  expect_equal(timelines, rows);
  EXPECT_TRUE(
      std::ranges::any_of(rows, [](const Cells& row) { return ns_of(row, "overlapped_us") > 0; }));
  EXPECT_TRUE(std::ranges::any_of(rows, [](const Cells& row) {
    return ns_of(row, "window_us") > 1'000'000;
  })) << "all windows are short enough for six digits";
}

TEST(AccountOfARun, IsThatOfAPredictionAsWell) {
  const std::string folder = bench::scratch_folder();
  ASSERT_EQ(run("--predict h100-sxm-8 --tp 2,8 --hidden 4096 --seq 4096", folder), 0);
  expect_equal(timelines_of(folder), rows_that_ran(folder));
}

}  // namespace
}  // namespace shardmark
