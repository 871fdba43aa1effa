#include "bench/collectives/import_osu.hpp"

#include "core/error.hpp"

#include <algorithm>

namespace shardmark::bench::collectives {
namespace {

/// A part of a test's title and the collective it measures; the first that fits counts.
struct Test {
  std::string_view part, collective;
  std::int64_t ranks{0};  ///< 0: any number
};
constexpr Test tests[] = {
    {"Neighborhood", "", 0},
    {"Put ", "", 2},
    {"Get ", "", 2},
    {"Accumulate", "", 2},
    {"Allreduce", "all_reduce", 0},
    {"Allgatherv", "", 0},
    {"Allgather", "all_gather", 0},
    {"All-to-Allv", "all_to_all_v", 0},
    {"All-to-Allw", "", 0},
    {"All-to-All", "all_to_all", 0},
    {"Alltoallv", "all_to_all_v", 0},
    {"Alltoall", "all_to_all", 0},
    {"Reduce_scatter", "reduce_scatter", 0},
    {"Reduce-scatter", "reduce_scatter", 0},
    {"Reduce", "reduce", 0},
    {"Broadcast", "broadcast", 0},
    {"Gatherv", "", 0},
    {"Scatterv", "", 0},
    {"Gather", "gather", 0},
    {"Scatter", "scatter", 0},
    {"Barrier", "barrier", 0},
    {"Multiple Bandwidth", "send_recv", 0},
    {"Multi Latency", "send_recv", 0},
    {"Multi-threaded", "send_recv", 2},
    {"Latency Test", "send_recv", 2},
    {"Bandwidth Test", "send_recv", 2},
};

/// Without blanks, so that "Latency (us)" and "Latency(us)" are the same column.
std::string squeezed(std::string_view text) {
  std::string result{text};
  std::erase(result, ' ');
  return result;
}

/// Exactly what the digits say: 1.19 becomes 0.00119, which 1.19 / 1000 is not.
double in_thousands(std::string_view digits, const PrintedNumber& number) {
  const auto shifted = parse_printed(message(digits, "e-3"));
  return shifted ? shifted->value : number.value / 1e3;
}

}  // namespace

bool OsuReader::starts_a_test(std::string_view text) {
  return text.starts_with("# OSU ") && text.find("Test") != std::string_view::npos;
}

void OsuReader::start_run(std::string_view title, ImportedLog& log) {
  run_ = {.tool = "osu", .title = std::string{title.substr(2)}, .run = log.num_runs++};
  columns_.clear();
  for (const Test& test : tests) {
    if (title.find(test.part) == std::string_view::npos) continue;
    run_.collective = test.collective;
    if (test.ranks > 0) run_.ranks = test.ranks;
    break;
  }
}

void OsuReader::take(const LogLine& line, ImportedLog& log) {
  if (starts_a_test(line.text)) return start_run(line.text, log);
  if (!line.text.starts_with('#')) return take_row(line, log);
  const std::string_view text = line.text.substr(1);
  if (const std::size_t at = text.find("pairs:"); at != std::string_view::npos) {
    const auto words = split_fields(text.substr(at + 6));
    const auto pairs = words.empty() ? std::nullopt : parse_integer(words[0]);
    if (pairs) run_.ranks = 2 * *pairs;
  } else if (const std::size_t type = text.find("Datatype:"); type != std::string_view::npos) {
    const auto words = split_fields(text.substr(type + 9));
    if (!words.empty())
      run_.dtype = words[0].ends_with('.') ? words[0].substr(0, words[0].size() - 1) : words[0];
  } else if (text.find("(us)") != std::string_view::npos ||
             text.find("MB/s") != std::string_view::npos) {
    columns_.clear();
    for (const std::string_view column : split_columns(text)) columns_.push_back(squeezed(column));
  }
}

void OsuReader::take_row(const LogLine& line, ImportedLog& log) {
  const std::vector<std::string_view> fields = split_fields(line.text);
  if (!parse_printed(fields[0])) return;
  if (columns_.empty())
    return log.report(line,
                      message("a number before the line that names the columns of ", run_.title));
  if (fields.size() != columns_.size())
    return log.report(line, message(fields.size(), " fields where ", run_.title, " has ",
                                    columns_.size(), " columns"));
  ImportedRow row = run_;
  row.line = line.number;
  for (std::size_t i = 0; i < fields.size(); ++i)
    if (!store(columns_[i], fields[i], row))
      return log.report(line, message("column ", columns_[i], " is ", fields[i]));
  if (!line.terminated)
    log.report(line, "the last line has no newline: its last number may be cut short");
  log.rows.push_back(std::move(row));
}

bool OsuReader::store(std::string_view column, std::string_view field, ImportedRow& row) const {
  if (column == "Validation") {
    if (field == "Pass")
      row.num_wrong = 0;
    else
      row.others.emplace_back("validation_failed", 1);
    return field == "Pass" || field == "Fail";
  }
  if (column == "Size" || column == "Iterations") {
    const auto value = parse_integer(field);
    if (!value || *value < 0) return false;
    if (column == "Size")
      row.bytes = *value;
    else
      row.iterations = *value;
    return true;
  }
  const auto number = parse_printed(field);
  if (!number) return false;
  // Of a non-blocking collective the time of the communication without the compute beside it.
  if (column == "Latency(us)" || column == "AvgLatency(us)" || column == "PureComm.(us)")
    row.time_us = number->value;
  else if (column == "MinLatency(us)" || column == "MinComm.(us)")
    row.min_us = number->value;
  else if (column == "MaxLatency(us)" || column == "MaxComm.(us)")
    row.max_us = number->value;
  else if (column == "Bandwidth(MB/s)" || column == "MB/s")
    row.algbw_GBps = in_thousands(field, *number);
  else
    row.others.emplace_back(column, number->value);
  return true;
}

}  // namespace shardmark::bench::collectives
