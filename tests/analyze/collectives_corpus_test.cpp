#include "bench/analyze/collectives.hpp"
#include "bench/harness/csv.hpp"
#include "core/error.hpp"
#include "profiler/read/read.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace shardmark::bench {
namespace {

/// Rows of a CSV as column -> cell.
std::vector<std::map<std::string, std::string>> rows_of(const std::string& path) {
  std::vector<std::map<std::string, std::string>> rows;
  const auto lines = parse_csv(read_file(path));
  for (std::size_t line = 1; line < lines.size(); ++line) {
    auto& row = rows.emplace_back();
    for (std::size_t i = 0; i < lines[line].size(); ++i) row[lines[0].at(i)] = lines[line][i];
  }
  return rows;
}

/// The file of the first rank of a set.
std::string file_of(const std::string& corpus, const std::string& set) {
  for (const auto& row : rows_of(corpus + "/files.csv"))
    if (row.at("set") == set) return corpus + '/' + row.at("file");
  return {};
}

TEST(CollectivesCorpus, BandwidthsEqualTheTruthInEveryDigit) {
  const char* const corpus = std::getenv("SHARDMARK_TRACE_CORPUS");
  if (corpus == nullptr) GTEST_SKIP() << "SHARDMARK_TRACE_CORPUS is not set";
  std::map<std::string, std::pair<RankRecording, std::vector<Communication>>> sets;
  int num_checked = 0;
  for (const auto& row : rows_of(message(corpus, "/truth/collective_bandwidth.csv"))) {
    auto& [rank, calls] = sets[row.at("set")];
    if (calls.empty()) {
      rank.timeline = read_recording(file_of(corpus, row.at("set"))).at(0);
      rank.classes = classify(rank.timeline, CommRule::automatic, {});
      calls = communications_of(rank);
      // The truth is of NCCL's kernels that carry metadata.
      std::erase_if(calls, [&rank = rank](const Communication& call) {
        const std::string& name = rank.timeline.names[rank.timeline.events[call.event].name];
        return call.group == no_index || !name.starts_with("nccl");
      });
    }
    const std::string where = row.at("set") + " collective " + row.at("order");
    const std::size_t order = std::stoul(row.at("order"));
    ASSERT_LT(order, calls.size()) << where;
    const Communication& call = calls[order];
    const DeviceEvent& event = rank.timeline.events[call.event];
    const int size = size_of(rank.timeline.groups[call.group]);
    const std::int64_t duration_ns = call.time.end_ns - call.time.start_ns;
    EXPECT_EQ(rank.timeline.calls[event.call].kind, row.at("collective")) << where;
    EXPECT_EQ(rank.timeline.names[event.name].substr(0, row.at("kernel").size()), row.at("kernel"))
        << where;
    EXPECT_EQ(std::to_string(size), row.at("group_size")) << where;
    EXPECT_EQ(call.dtype, row.at("dtype")) << where;
    EXPECT_EQ(std::to_string(call.bytes), row.at("bytes")) << where;
    const double duration_us = static_cast<double>(duration_ns) / 1e3;
    EXPECT_EQ(fmt::format("{:.3f}", duration_us), row.at("dur_us")) << where;
    const Bandwidth rates = bandwidth_of(call.kind, size, call.bytes, duration_us);
    EXPECT_EQ(fmt::format("{:.4f}", rates.algbw_GBps), row.at("algbw_GBps")) << where;
    EXPECT_EQ(fmt::format("{:.4f}", rates.busbw_GBps), row.at("busbw_GBps")) << where;
    ++num_checked;
  }
  EXPECT_GT(num_checked, 0);
}

}  // namespace
}  // namespace shardmark::bench
