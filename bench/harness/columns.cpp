#include "bench/harness/columns.hpp"

#include "bench/harness/column_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace shardmark::bench {
namespace {

std::vector<Column> columns_of(Tool tool) {
  const unsigned mine = 1U << static_cast<unsigned>(tool);
  std::vector<Column> all;
  for (auto part : {identity_columns(), shape_columns(), time_columns(), pipeline_columns(),
                    inference_columns(), rate_columns(), quality_columns()})
    std::ranges::copy_if(part, std::back_inserter(all), [&](const Column& column) {
      return (static_cast<unsigned>(column.of) & mine) != 0;
    });
  return all;
}

std::string markdown_row(const auto& column) {
  return fmt::format("| `{}` | {} | {} |\n", column.name, column.unit, column.meaning);
}

}  // namespace

std::string text(bool value) { return value ? "true" : "false"; }
std::string text(int value) { return fmt::format("{}", value); }
std::string text(std::int64_t value) { return fmt::format("{}", value); }
std::string text(double value) {
  if (!std::isfinite(value)) return "";
  const bool whole = std::abs(value) < 1e18 && value == std::floor(value);
  if (value == 0) return "0";  // not "-0"
  return whole ? fmt::format("{:.0f}", value) : fmt::format("{:.6g}", value);
}

std::string exact_us(double time_us) {
  if (!std::isfinite(time_us)) return "";
  const double rounded = std::round(time_us * 1e3) / 1e3;
  return rounded == 0 ? "0" : fmt::format("{}", rounded);  // not "-0"
}

double busiest(const Row& row, double RankWork::*value) {
  double most = 0;
  for (const RankWork& work : row.result.work) most = std::max(most, work.*value);
  return most;
}
double mean(const Row& row, double RankWork::*value) {
  double sum = 0;
  for (const RankWork& work : row.result.work) sum += work.*value;
  return sum / static_cast<double>(std::max<std::size_t>(row.result.work.size(), 1));
}

std::span<const Column> result_columns(Tool tool) {
  static const std::array<std::vector<Column>, 3> columns{
      columns_of(Tool::tp), columns_of(Tool::cp), columns_of(Tool::pp)};
  return columns[static_cast<std::size_t>(tool)];
}

std::span<const KernelColumn> kernel_columns() {
  using Kernel = const KernelRow&;
  static const std::vector<KernelColumn> columns{
      {"rank", "", "rank of the world", [](Kernel k) { return text(k.kernel.rank); }},
      {"path", "", "where in the block", [](Kernel k) { return k.kernel.path; }},
      {"op", "", "operation", [](Kernel k) { return k.kernel.op; }},
      {"kernel", "", "implementation, as its library calls it",
       [](Kernel k) { return k.kernel.name; }},
      {"kind", "", "compute or communication", [](Kernel k) { return k.kernel.kind; }},
      {"lane", "", "queue it ran on", [](Kernel k) { return k.kernel.lane; }},
      {"group_size", "ranks", "ranks that communicate with each other; 1: compute",
       [](Kernel k) { return text(k.kernel.group_size); }},
      {"count", "", "calls in the profiled iteration",
       [](Kernel k) { return text(k.kernel.count); }},
      {"total_us", "us", "time of all calls; communication includes waiting",
       [](Kernel k) { return text(k.kernel.total_us); }},
      {"flops", "FLOP", "of all calls", [](Kernel k) { return text(k.kernel.flops); }},
      {"bytes_memory", "bytes", "operands of all calls, each once",
       [](Kernel k) { return text(k.kernel.bytes_memory); }},
      {"bytes_wire", "bytes", "across this rank's link",
       [](Kernel k) { return text(k.kernel.bytes_wire); }},
  };
  return columns;
}

std::string Column::cell(const Row& row) const {
  if (holds == Holds::key || holds == Holds::always) return value(row);
  if (row.result.time.p50 <= 0) return {};
  if (holds == Holds::communicating && row.result.num_ranks() == 1) return {};
  if (holds == Holds::sampled && !row.run.machine.empty()) return {};
  return value(row);
}

std::string row_key(const Row& row) {
  std::string key;
  for (const Column& column : result_columns(row.run.tool))
    if (column.holds == Column::Holds::key) key += column.cell(row) + '\n';
  return key;
}

std::string columns_markdown(Tool tool) {
  const std::string head = "| Column | Unit | Meaning |\n|---|---|---|\n";
  const std::string of = tool == Tool::tp ? "" : fmt::format(" of {}", name_of(tool));
  std::string table = fmt::format("### results.csv{}\n\n{}", of, head);
  for (const Column& column : result_columns(tool)) table += markdown_row(column);
  table += fmt::format(
      "\n### kernels.csv{}\n\nThe columns of results.csv that tell configurations apart, "
      "then:\n\n{}",
      of, head);
  for (const KernelColumn& column : kernel_columns()) table += markdown_row(column);
  return table;
}

}  // namespace shardmark::bench
