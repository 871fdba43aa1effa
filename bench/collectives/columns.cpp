#include "bench/collectives/columns.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace shardmark::bench::collectives {
namespace {

std::string text(bool value) { return value ? "true" : "false"; }
std::string text(int value) { return fmt::format("{}", value); }
std::string text(std::int64_t value) { return fmt::format("{}", value); }
std::string text(std::string_view value) { return std::string{value}; }
std::string text(const std::string& value) { return value; }
std::string text(const char* value) { return value; }
/// Six significant digits for rates and times, whole numbers for counts of bytes.
std::string text(double value) {
  if (!std::isfinite(value)) return "";
  const bool whole = std::abs(value) < 1e18 && value == std::floor(value);
  return whole ? fmt::format("{:.0f}", value) : fmt::format("{:.6g}", value);
}
/// Empty where a negative number says that there is none.
std::string text_if_known(double value) { return value < 0 ? "" : text(value); }

using enum Column::Holds;
using L = const Line&;

std::string reduction_of(L l) {
  return facts_of(l.row.point.collective).has_reduction ? text(name_of(l.row.point.reduction))
                                                        : "none";
}
std::string root_of(L l) {
  return facts_of(l.row.point.collective).has_root ? text(l.row.point.root) : "-1";
}
std::string status_of(L l) {
  return l.row.status == Status::ok ? "ok" : l.row.status == Status::skipped ? "skipped" : "failed";
}
std::string check_of(L l) {
  if (!l.row.checked) return "skipped";
  return l.row.num_wrong == 0 ? "pass" : "fail";
}
std::string wait_of(const std::vector<Wait>& waits, const Wait* longest, double Wait::*member) {
  if (longest == nullptr) return "";
  for (const Wait& wait : waits)
    if (wait.rank == longest->rank) return text(wait.*member);
  return "";
}
std::string overlap_of(L l, double Overlap::*member) {
  return l.row.has_overlap ? text(l.row.overlap.*member) : "";
}

std::vector<Column> key_columns() {
  return {
      {"schema_version", "", "version of this table", key, [](L) { return text(schema_version); }},
      {"run_id", "", "start time and process of the run that measured the row", always,
       [](L l) { return text(l.run.run_id); }},
      {"source", "", "measured here, or the kind of log it was imported from", key,
       [](L) { return text("measured"); }},
      {"backend", "", "what ran them: cpu or cuda", key, [](L l) { return text(l.run.backend); }},
      {"transport", "",
       "threads (ranks are threads of one process) or mpi; between GPUs nccl, staged or mpi-cuda",
       key, [](L l) { return text(l.run.transport); }},
      {"device", "", "rank 0's processor or GPU", always, [](L l) { return text(l.run.device); }},
      {"op_or_block", "", "the collective", key,
       [](L l) { return text(name_of(l.row.point.collective)); }},
      {"pattern", "", "send_recv: ring, ping, ping-pong or bidirectional", key,
       [](L l) { return text(name_of(l.row.point.pattern)); }},
      {"algorithm", "", "native (the transport's own), a plan's name, or auto", key,
       [](L l) { return text(l.row.point.algorithm); }},
      {"dtype", "", "element type", key, [](L l) { return text(name_of(l.row.point.dtype)); }},
      {"reduction", "", "sum, prod, max, min, avg; none where nothing is reduced", key,
       reduction_of},
      {"root", "", "member of the group; -1 where there is none", key, root_of},
      {"in_place", "", "input and output share memory", key,
       [](L l) { return text(l.row.point.in_place); }},
      {"size_bytes", "B", "larger buffer of a member: the total where buffers differ", key,
       [](L l) { return text(l.row.point.size_bytes); }},
      {"count", "elements", "nccl-tests' count: a member's block, or the whole buffer", always,
       [](L l) { return text(l.row.point.count); }},
      {"world_size", "ranks", "ranks of the launch", key,
       [](L l) { return text(l.row.point.group_size * l.row.point.num_groups); }},
      {"axis", "", "axis of --groups whose groups communicate", key,
       [](L l) { return text(l.row.point.axis); }},
      {"group_size", "ranks", "ranks that communicate with each other", key,
       [](L l) { return text(l.row.point.group_size); }},
      {"num_groups", "", "groups that do so at the same time", key,
       [](L l) { return text(l.row.point.num_groups); }},
  };
}

std::vector<Column> time_columns() {
  return {
      {"time_us_p50", "us", "median sample: one call, the slowest rank's time (see -a)", measured,
       [](L l) { return text(l.row.time.p50); }},
      {"time_us_p10", "us", "10th percentile", measured, [](L l) { return text(l.row.time.p10); }},
      {"time_us_p95", "us", "95th percentile", measured, [](L l) { return text(l.row.time.p95); }},
      {"time_us_p99", "us", "99th percentile", measured, [](L l) { return text(l.row.time.p99); }},
      {"time_us_min", "us", "", measured, [](L l) { return text(l.row.time.min); }},
      {"time_us_max", "us", "", measured, [](L l) { return text(l.row.time.max); }},
      {"time_us_mean", "us", "", measured, [](L l) { return text(l.row.time.mean); }},
      {"cv_pct", "%", "standard deviation of the samples over their mean", measured,
       [](L l) { return text(l.row.time.cv_pct); }},
      {"time_us_p50_ci_pct", "%",
       "half the width of the 95 % confidence interval of time_us_p50: the larger of that from "
       "order "
       "statistics n/2 +- 0.98 sqrt(n) and that from the medians of ten batches of consecutive "
       "samples, which also sees drift: the noise of the row",
       measured, [](L l) { return text(l.row.time.p50_ci_pct); }},
      {"samples", "", "", measured, [](L l) { return text(l.row.time.samples); }},
      {"inner_calls", "", "back-to-back calls of one sample", measured,
       [](L l) { return text(l.row.inner_calls); }},
      {"warmup", "", "untimed samples before", measured, [](L l) { return text(l.row.warmup); }},
      {"algbw_GBps", "GB/s", "size_bytes over time_us_p50; GB = 1e9 B", measured,
       [](L l) { return text(l.row.algbw_GBps()); }},
      {"busbw_GBps", "GB/s", "algbw times nccl-tests' factor for group_size", measured,
       [](L l) { return text(l.row.busbw_GBps()); }},
      {"wait_us", "us", "of the rank that waits longest: its arrival to the last one's, median",
       measured, [](L l) { return wait_of(l.row.waits, l.row.longest_wait(), &Wait::wait_us); }},
      {"transfer_us", "us", "of the same rank: the last arrival to its end, median", measured,
       [](L l) { return wait_of(l.row.waits, l.row.longest_wait(), &Wait::transfer_us); }},
      {"skew_us", "us", "--skew-us: delay put before the delayed rank's calls", measured,
       [](L l) { return text(l.row.skew_us); }},
      {"wait_unskewed_us", "us", "the same where all ranks pause that long before the call",
       measured,
       [](L l) { return wait_of(l.row.waits_unskewed, l.row.longest_wait(), &Wait::wait_us); }},
      {"transfer_unskewed_us", "us", "the same where all ranks pause that long before the call",
       measured,
       [](L l) { return wait_of(l.row.waits_unskewed, l.row.longest_wait(), &Wait::transfer_us); }},
      {"alone_us", "us", "--groups: median of the first group while the others are idle", measured,
       [](L l) { return text_if_known(l.row.alone_us); }},
      {"contention", "", "time_us_p50 over alone_us", measured,
       [](L l) { return l.row.alone_us > 0 ? text(l.row.contention()) : ""; }},
  };
}

std::vector<Column> account_columns() {
  return {
      {"bytes_analytic", "B",
       "sent by the busiest member per call, by the closed form of the row's algorithm (heads of "
       "collectives/*.cpp); native: the least that must cross its link, the bytes of busbw; empty "
       "for a plan from a file. Where it is not bytes_plan and bytes_observed, the row fails",
       measured, [](L l) { return text_if_known(l.row.bytes_analytic); }},
      {"bytes_plan", "B", "sent by the busiest member, by the plan's steps; empty for native",
       measured, [](L l) { return text_if_known(l.row.bytes_plan); }},
      {"bytes_observed", "B",
       "a plan: sent by the busiest member, counted message by message in the transport; native: "
       "the "
       "formula of each call that was started, since what the library moves cannot be seen",
       measured, [](L l) { return text(l.row.bytes_observed); }},
      {"expected_us", "us", "alpha + bytes / bandwidth, fitted over the sizes of the series",
       measured, [](L l) { return text_if_known(l.row.expected_us); }},
      {"alpha_us", "us", "the fit's latency", measured,
       [](L l) { return text_if_known(l.row.alpha_us); }},
      {"bandwidth_GBps", "GB/s", "the fit's bandwidth, of size_bytes", measured,
       [](L l) { return text_if_known(l.row.bandwidth_GBps); }},
      {"fit_error_pct", "%", "median |expected - measured| / measured over the series", measured,
       [](L l) { return text_if_known(l.row.fit_error_pct); }},
      {"copy_us", "us",
       "all ranks copy size_bytes each at once, same buffers, out of place; median of samples in "
       "turn with the row's",
       measured, [](L l) { return text_if_known(l.row.copy_us); }},
      {"efficiency_pct", "%",
       "busbw_GBps of the copy's bandwidth, size_bytes / copy_us; above 100 where a rank works on "
       "a peer's buffer directly: busbw counts bytes as sent over links, the copy moves each "
       "byte through memory twice",
       measured, [](L l) { return l.row.copy_us > 0 ? text(l.row.efficiency_pct()) : ""; }},
      {"matmul_us", "us", "--with-matmul: the product alone", measured,
       [](L l) { return overlap_of(l, &Overlap::matmul_us); }},
      {"collective_alone_us", "us", "the collective alone, in the same samples", measured,
       [](L l) { return overlap_of(l, &Overlap::collective_us); }},
      {"together_us", "us", "both at once", measured,
       [](L l) { return overlap_of(l, &Overlap::together_us); }},
      {"comp_tax_pct", "%", "compute kernel time, together over alone, minus 1", measured,
       [](L l) { return overlap_of(l, &Overlap::comp_tax_pct); }},
      {"comm_tax_pct", "%", "communication time, together over alone, minus 1", measured,
       [](L l) { return overlap_of(l, &Overlap::comm_tax_pct); }},
      {"overlap_of_shorter", "", "(matmul + collective - together) / the shorter of the two",
       measured, [](L l) { return overlap_of(l, &Overlap::efficiency); }},
      {"progress", "",
       "--with-matmul: poll (between tiles of the product) or thread (one beside each rank)",
       measured,
       [](L l) {
         if (!l.row.has_overlap) return std::string{};
         return text(l.row.overlap.progress_thread ? "thread" : "poll");
       }},
      {"chosen", "", "algorithm that auto took", always, [](L l) { return text(l.row.chosen); }},
      {"num_wrong", "elements", "wrong elements over all ranks", measured,
       [](L l) { return l.row.checked ? text(l.row.num_wrong) : ""; }},
      {"check", "", "pass, fail or skipped: exact comparison of every element", always, check_of},
      {"oversubscribed", "",
       "more ranks (and threads of --progress thread) than cores: do not compare times", always,
       [](L l) { return text(l.row.oversubscribed); }},
      {"rank_scope", "", "whose time it is: max, or what -a says", always,
       [](L l) { return text(l.row.rank_scope); }},
      {"status", "", "ok, skipped or failed", always, status_of},
      {"verdict", "", "what limits the row", always, [](L l) { return text(l.row.verdict); }},
      {"verdict_reason", "", "its numbers", always, [](L l) { return text(l.row.verdict_reason); }},
      {"reason", "", "why not ok", always, [](L l) { return text(l.row.reason); }},
  };
}

std::vector<std::string> key_names() {
  std::vector<std::string> names;
  for (const Column& column : columns())
    if (column.holds == key) names.push_back(column.name);
  return names;
}

}  // namespace

std::span<const Column> columns() {
  static const std::vector<Column> all = [] {
    std::vector<Column> columns = key_columns();
    for (auto part : {time_columns(), account_columns()})
      for (Column& column : part) columns.push_back(std::move(column));
    return columns;
  }();
  return all;
}

std::string Column::cell(const Line& line) const {
  if (holds == measured && line.row.time.samples == 0) return "";
  return value(line);
}

std::vector<std::string> column_names() {
  std::vector<std::string> names;
  for (const Column& column : columns()) names.push_back(column.name);
  return names;
}

std::vector<std::string> cells_of(const Line& line) {
  std::vector<std::string> cells;
  for (const Column& column : columns()) cells.push_back(column.cell(line));
  return cells;
}

std::string key_of(const Line& line) {
  std::string joined;
  for (const Column& column : columns())
    if (column.holds == key) joined += column.cell(line) + '\n';
  return joined;
}

std::vector<std::string> wait_column_names() {
  std::vector<std::string> names = key_names();
  for (const char* name : {"rank", "skew_us", "wait_us", "transfer_us"}) names.emplace_back(name);
  return names;
}

std::vector<std::vector<std::string>> wait_cells_of(const Line& line) {
  std::vector<std::vector<std::string>> lines;
  const auto append = [&](const std::vector<Wait>& waits, double skew_us) {
    for (const Wait& wait : waits) {
      std::vector<std::string>& cells = lines.emplace_back();
      for (const Column& column : columns())
        if (column.holds == key) cells.push_back(column.cell(line));
      for (std::string cell :
           {text(wait.rank), text(skew_us), text(wait.wait_us), text(wait.transfer_us)})
        cells.push_back(std::move(cell));
    }
  };
  append(line.row.waits_unskewed, 0);
  append(line.row.waits, line.row.skew_us);
  return lines;
}

std::string columns_markdown() {
  std::string table = "| Column | Unit | Meaning |\n|---|---|---|\n";
  for (const Column& column : columns())
    table += fmt::format("| `{}` | {} | {} |\n", column.name, column.unit, column.meaning);
  return table;
}

}  // namespace shardmark::bench::collectives
