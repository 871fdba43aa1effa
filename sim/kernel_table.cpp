#include "core/error.hpp"
#include "sim/kernel_table_internal.hpp"

#include <algorithm>
#include <charconv>
#include <sstream>

namespace shardmark {
namespace {

/// Cells of a line; quotes around a cell are undone.
std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> cells{""};
  bool quoted = false;
  for (const char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      cells.emplace_back();
    else if (c != '\r')
      cells.back() += c;
  }
  return cells;
}

class Table {
 public:
  explicit Table(const std::string& header) : names_{split(header)} {}

  void read(const std::string& line, int number) {
    cells_ = split(line);
    number_ = number;
    if (cells_.size() != names_.size())
      throw InputError{message("kernels.csv, line ", number, ": ", cells_.size(), " cells, ",
                               names_.size(), " columns")};
  }
  [[nodiscard]] bool has(const std::string& name) const {
    return std::ranges::find(names_, name) != names_.end();
  }
  [[nodiscard]] std::size_t column(const std::string& name) const {
    const auto found = std::ranges::find(names_, name);
    if (found == names_.end())
      throw InputError{message("kernels.csv has no column '", name,
                               "'; it must be that of a run of shardmark-tp, -cp or -pp")};
    return static_cast<std::size_t>(found - names_.begin());
  }
  [[nodiscard]] const std::string& text(const std::string& name) const {
    return cells_[column(name)];
  }
  [[nodiscard]] double number(const std::string& name) const {
    const std::string& cell = text(name);
    double value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error != std::errc{} || end != cell.data() + cell.size() || value < 0)
      throw InputError{message("kernels.csv, line ", number_, ": ", name, " is '", cell,
                               "'; it must be a number, 0 or more")};
    return value;
  }
  /// The cells before column `end`, and some more.
  [[nodiscard]] std::string joined_before(const std::string& end,
                                          std::initializer_list<const char*> more) const {
    std::string text_of_all;
    for (std::size_t i = 0; i < column(end); ++i) text_of_all += cells_[i] + '\n';
    for (const char* name : more) text_of_all += text(name) + '\n';
    return text_of_all;
  }

 private:
  std::vector<std::string> names_, cells_;
  int number_{1};
};

/// Files of before there was a column for it: the lane of a collective is named after its axis, as
/// is the column with the degree.
std::string degree_column(const std::string& lane) { return lane.starts_with("pp_") ? "pp" : lane; }

}  // namespace

std::vector<KernelRow> parse_kernels(const std::string& csv) {
  std::istringstream lines{csv};
  std::string line;
  std::getline(lines, line);
  Table table{line};
  std::vector<KernelRow> rows;
  for (int number = 2; std::getline(lines, line); ++number) {
    table.read(line, number);
    const double count = table.number("count");
    if (count < 1) continue;
    KernelRow row{.place = table.joined_before("rank", {"path", "op", "kernel"}),
                  .op = table.text("op"),
                  .dtype = table.text("dtype"),
                  .kind = table.text("kind"),
                  .is_pipeline_message = table.text("lane").starts_with("pp_"),
                  .time_us = table.number("total_us") / count,
                  .flops = table.number("flops") / count,
                  .bytes_memory = table.number("bytes_memory") / count,
                  .bytes_wire = table.number("bytes_wire") / count};
    if (row.kind == "communication")
      row.group_size = static_cast<int>(
          table.number(table.has("group_size") ? "group_size" : degree_column(table.text("lane"))));
    row.overlaps = table.has("overlap") && table.text("overlap") == "true";
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace shardmark
