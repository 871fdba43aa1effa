#include "collectives/choose.hpp"

#include "collectives/plan.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <tuple>

namespace shardmark {
namespace {

constexpr std::string_view header = "collective,group_size,min_bytes,max_bytes,algorithm";

std::string describe(const ChoiceTable::Row& row) {
  return message(name_of(row.collective), " on ", row.group_size, " ranks from ", row.min_bytes,
                 " bytes");
}

auto order(const ChoiceTable::Row& row) {
  return std::tuple{row.collective, row.group_size, row.min_bytes};
}

bool ends_before(const ChoiceTable::Row& row, std::int64_t bytes) {
  return row.max_bytes >= 0 && row.max_bytes < bytes;
}

void check_row(const ChoiceTable::Row& row) {
  const auto names = algorithm_names(row.collective);
  if (row.algorithm != "native" && std::ranges::find(names, row.algorithm) == names.end())
    throw InputError{
        message(describe(row), ": there is no algorithm '", row.algorithm, "' for it")};
  if (row.group_size < 1)
    throw InputError{message(describe(row), ": a group has one rank or more")};
  if (row.min_bytes < 0 || ends_before(row, row.min_bytes))
    throw InputError{message(describe(row), ": the range ends at ", row.max_bytes)};
}

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> fields{""};
  for (const char c : line) {
    if (c == ',')
      fields.emplace_back();
    else if (c != '\r' && c != ' ')
      fields.back() += c;
  }
  return fields;
}

std::int64_t parse_number(std::string_view what, const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0)
    throw InputError{message("'", text, "' is not a number for ", what)};
  return value;
}

ChoiceTable::Row parse_row(const std::string& line) {
  const std::vector<std::string> fields = split(line);
  if (fields.size() != 5) throw InputError{message(fields.size(), " fields; a row is ", header)};
  const auto collective = parse_collective(fields[0]);
  if (!collective) throw InputError{message("there is no collective '", fields[0], "'")};
  const std::int64_t group_size = parse_number("group_size", fields[1]);
  if (group_size > 1 << 24) throw InputError{message("a group of ", group_size, " ranks")};
  return {*collective, static_cast<int>(group_size), parse_number("min_bytes", fields[2]),
          fields[3].empty() ? -1 : parse_number("max_bytes", fields[3]), fields[4]};
}

}  // namespace

ChoiceTable::ChoiceTable(std::vector<Row> rows) : rows_{std::move(rows)} {
  std::ranges::sort(rows_, {}, order);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    check_row(rows_[i]);
    if (i == 0 || rows_[i - 1].collective != rows_[i].collective ||
        rows_[i - 1].group_size != rows_[i].group_size)
      continue;
    if (!ends_before(rows_[i - 1], rows_[i].min_bytes))
      throw InputError{message(
          describe(rows_[i]), ": the range before ends at ",
          rows_[i - 1].max_bytes < 0 ? std::string{"no size"} : message(rows_[i - 1].max_bytes))};
  }
}

const ChoiceTable::Row* ChoiceTable::find(Collective collective, int group_size,
                                          std::int64_t bytes) const {
  const auto after =
      std::ranges::upper_bound(rows_, std::tuple{collective, group_size, bytes}, {}, order);
  if (after == rows_.begin()) return nullptr;
  const Row& row = *std::prev(after);
  const bool fits =
      row.collective == collective && row.group_size == group_size && !ends_before(row, bytes);
  return fits ? &row : nullptr;
}

std::string_view ChoiceTable::pick(Collective collective, int group_size,
                                   std::int64_t bytes) const {
  const Row* row = find(collective, group_size, bytes);
  return row == nullptr ? std::string_view{"native"} : row->algorithm;
}

std::string to_text(const ChoiceTable& table) {
  std::string text{header};
  text += '\n';
  for (const ChoiceTable::Row& row : table.rows())
    text += message(name_of(row.collective), ',', row.group_size, ',', row.min_bytes, ',',
                    row.max_bytes < 0 ? std::string{} : message(row.max_bytes), ',', row.algorithm,
                    '\n');
  return text;
}

ChoiceTable parse_choice_table(const std::string& text) {
  std::istringstream lines{text};
  std::vector<ChoiceTable::Row> rows;
  int number = 0;
  bool has_header = false;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty() || line == "\r" || line[0] == '#') continue;
    try {
      if (has_header) {
        rows.push_back(parse_row(line));
        check_row(rows.back());
      } else if (split(line) != split(std::string{header})) {
        throw InputError{message("the header should be ", header)};
      }
      has_header = true;
    } catch (const InputError& error) {
      throw InputError{message("choice table, line ", number, ": ", error.what())};
    }
  }
  if (!has_header) throw InputError{message("the choice table is empty; its header is ", header)};
  return ChoiceTable{std::move(rows)};
}

}  // namespace shardmark
