#include "bench/collectives/import.hpp"
#include "bench/harness/csv.hpp"
#include "core/error.hpp"

#include <array>
#include <charconv>
#include <filesystem>
#include <iomanip>
#include <ostream>
#include <sstream>

namespace shardmark::bench::collectives {
namespace {

/// The shortest text that reads back as the same number.
template <class Number>
std::string shortest(Number value) {
  std::array<char, 40> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} ? std::string{text.data(), end} : std::string{};
}
template <class Number>
std::string cell(const std::optional<Number>& value) {
  return value ? shortest(*value) : std::string{};
}

void print_table(const std::vector<ImportedRow>& rows, std::ostream& out) {
  out << std::setw(4) << "run" << std::setw(15) << "collective" << std::setw(13) << "size (B)"
      << std::setw(10) << "type" << std::setw(7) << "redop" << std::setw(6) << "ranks"
      << std::setw(9) << "in_place" << std::setw(13) << "time (us)" << std::setw(14)
      << "algbw (GB/s)" << std::setw(14) << "busbw (GB/s)" << std::setw(8) << "#wrong" << '\n';
  const auto text = [](const std::string& value) { return value.empty() ? "-" : value; };
  for (const ImportedRow& row : rows)
    out << std::setw(4) << row.run << std::setw(15) << text(row.collective) << std::setw(13)
        << row.bytes << std::setw(10) << text(row.dtype) << std::setw(7) << text(row.reduction)
        << std::setw(6) << text(cell(row.ranks)) << std::setw(9) << (row.in_place ? "yes" : "no")
        << std::setw(13) << text(cell(row.time_us)) << std::setw(14) << text(cell(row.algbw_GBps))
        << std::setw(14) << text(cell(row.busbw_GBps)) << std::setw(8)
        << text(row.max_error ? cell(row.max_error) : cell(row.num_wrong)) << '\n';
}

}  // namespace

const std::vector<std::string>& imported_columns() {
  static const std::vector<std::string> names{
      "file",       "tool",      "title",     "run",       "line",       "collective",
      "bytes",      "count",     "dtype",     "reduction", "root",       "in_place",
      "ranks",      "time_us",   "min_us",    "max_us",    "iterations", "algbw_GBps",
      "busbw_GBps", "num_wrong", "max_error", "others"};
  return names;
}

std::vector<std::string> imported_cells(const ImportedRow& row, const std::string& file) {
  std::string others;
  for (const auto& [name, value] : row.others)
    others += (others.empty() ? "" : ";") + name + "=" + shortest(value);
  return {file,
          row.tool,
          row.title,
          shortest(row.run),
          shortest(row.line),
          row.collective,
          shortest(row.bytes),
          cell(row.count),
          row.dtype,
          row.reduction,
          cell(row.root),
          row.in_place ? "true" : "false",
          cell(row.ranks),
          cell(row.time_us),
          cell(row.min_us),
          cell(row.max_us),
          cell(row.iterations),
          cell(row.algbw_GBps),
          cell(row.busbw_GBps),
          cell(row.num_wrong),
          cell(row.max_error),
          others};
}

int run_import(const std::vector<std::string>& files, const std::string& out_dir, std::ostream& out,
               std::ostream& problems_out) {
  std::vector<std::vector<std::string>> table;
  bool all_gave_rows = true;
  for (const std::string& file : files) {
    std::istringstream in{read_file(file)};
    Problems problems;
    const std::vector<ImportedRow> rows = import_log(in, problems);
    for (const ImportProblem& problem : problems)
      problems_out << file << ':' << problem.line << ": " << problem.reason << '\n';
    if (rows.empty())
      problems_out
          << file << ": "
          << (problems.empty()
                  ? "neither nccl-tests, rccl-tests nor OSU output: expected a table under "
                    "'# size count type ...' or '# OSU MPI ... Test'"
                  : "no whole row in it")
          << '\n';
    else
      out << "# " << file << ": " << rows.size() << " measurements\n";
    if (!rows.empty()) print_table(rows, out);
    all_gave_rows = all_gave_rows && !rows.empty();
    for (const ImportedRow& row : rows) table.push_back(imported_cells(row, file));
  }
  if (!out_dir.empty() && !table.empty()) {
    std::error_code failed;
    std::filesystem::create_directories(out_dir, failed);
    // A new file each time: importing twice must not double the rows.
    const std::string path = out_dir + "/imported.csv";
    std::filesystem::rename(path, path + ".old", failed);
    CsvFile{path, imported_columns(), false}.append(table);
    out << "# wrote " << path << '\n';
  }
  return table.empty() ? 2 : all_gave_rows ? 0 : 1;
}

}  // namespace shardmark::bench::collectives
