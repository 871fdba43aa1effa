#include "bench/harness/csv_sinks.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>

namespace shardmark::bench {
namespace {

std::vector<std::string> names_of(const auto& columns) {
  std::vector<std::string> names;
  for (const auto& column : columns) names.push_back(column.name);
  return names;
}

std::vector<std::string> names_of_kernel_file(Tool tool) {
  std::vector<std::string> names;
  for (const Column& column : result_columns(tool))
    if (column.holds == Column::Holds::key) names.push_back(column.name);
  std::ranges::move(names_of(kernel_columns()), std::back_inserter(names));
  return names;
}

std::string results_path(const std::string& folder) { return folder + "/results.csv"; }
std::string kernels_path(const std::string& folder) { return folder + "/kernels.csv"; }

/// A run that was killed may have kernels of a row that is not in results.csv, and will measure it
/// again.
void drop_unfinished_kernels(const std::string& folder, Tool tool) {
  const std::string path = kernels_path(folder);
  if (!std::filesystem::exists(path)) return;
  const std::set<std::string> finished = finished_rows(folder, tool);
  const auto num_keys = static_cast<std::ptrdiff_t>(
      std::ranges::count(result_columns(tool), Column::Holds::key, &Column::holds));
  const auto rows = parse_csv(read_file(path));
  if (rows.empty() || rows.front() != names_of_kernel_file(tool)) return;
  std::string kept = csv_line(rows.front());
  for (std::size_t i = 1; i < rows.size(); ++i) {
    if (rows[i].size() != rows.front().size()) continue;
    std::string key;
    for (std::ptrdiff_t c = 0; c < num_keys; ++c)
      key += rows[i][static_cast<std::size_t>(c)] + '\n';
    if (finished.contains(key)) kept += csv_line(rows[i]);
  }
  write_whole(path, kept);
}

const std::string& prepared(const std::string& folder, Tool tool, bool resume) {
  if (resume) drop_unfinished_kernels(folder, tool);
  return folder;
}

}  // namespace

ResultsCsv::ResultsCsv(const std::string& folder, RunIdentity run, bool resume)
    : run_{std::move(run)},
      file_{results_path(folder), names_of(result_columns(run_.tool)), resume} {}

void ResultsCsv::add(const Outcome& row) {
  std::vector<std::string> cells;
  for (const Column& column : result_columns(run_.tool))
    cells.push_back(column.cell({row.result, run_}));
  file_.append({cells});
}

KernelsCsv::KernelsCsv(const std::string& folder, RunIdentity run, bool resume)
    : run_{std::move(run)},
      file_{kernels_path(prepared(folder, run_.tool, resume)), names_of_kernel_file(run_.tool),
            resume} {}

void KernelsCsv::add(const Outcome& row) {
  std::vector<std::vector<std::string>> rows;
  for (const KernelSummary& kernel : row.result.kernels) {
    std::vector<std::string>& cells = rows.emplace_back();
    for (const Column& column : result_columns(run_.tool))
      if (column.holds == Column::Holds::key) cells.push_back(column.cell({row.result, run_}));
    for (const KernelColumn& column : kernel_columns())
      cells.push_back(column.value({{row.result, run_}, kernel}));
  }
  if (!rows.empty()) file_.append(rows);
}

std::set<std::string> finished_rows(const std::string& folder, Tool tool) {
  const std::span<const Column> columns = result_columns(tool);
  std::set<std::string> keys;
  if (!std::filesystem::exists(results_path(folder))) return keys;
  const auto rows = parse_csv(read_file(results_path(folder)));
  if (rows.empty() || rows.front() != names_of(columns))
    throw InputError{message(results_path(folder),
                             " has other columns than this version writes; use another --out, or "
                             "leave out --resume")};
  for (std::size_t i = 1; i < rows.size(); ++i) {
    if (rows[i].size() != rows.front().size()) continue;
    if (rows[i].front() != std::to_string(schema_version))
      throw InputError{message(results_path(folder), " has schema_version ", rows[i].front(),
                               ", this version writes ", schema_version,
                               "; use another --out, or leave out --resume")};
    std::string key;
    bool failed = false;
    for (std::size_t c = 0; c < rows[i].size(); ++c) {
      failed = failed || (columns[c].name == "status" && rows[i][c] == "failed");
      if (columns[c].holds == Column::Holds::key) key += rows[i][c] + '\n';
    }
    if (!failed) keys.insert(std::move(key));
  }
  return keys;
}

void check_source(const std::string& folder, const RunIdentity& run) {
  const std::string path = results_path(folder);
  if (!std::filesystem::exists(path)) return;
  const std::string mine = run.machine.empty() ? "measured" : "predicted";
  const std::span<const Column> columns = result_columns(run.tool);
  const auto source = static_cast<std::size_t>(std::ranges::find(columns, "source", &Column::name) -
                                               columns.begin());
  const auto rows = parse_csv(read_file(path));
  for (std::size_t i = 1; i < rows.size(); ++i)
    if (rows[i].size() == columns.size() && rows[i][source] != mine)
      throw InputError{message(path, " has rows that are ", rows[i][source],
                               ", and these would be ", mine, "; use another --out")};
}

}  // namespace shardmark::bench
