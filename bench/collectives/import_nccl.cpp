#include "bench/collectives/import_nccl.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace shardmark::bench::collectives {
namespace {

constexpr std::size_t group_fields = 4;  // time, algbw, busbw and #wrong or error
// Of our own columns behind the groups: "in:cv(%)" is the in-place half's "cv(%)".
constexpr std::string_view in_place_mark = "in:";

struct KnownType {
  std::string_view name;
  std::int64_t bytes;
};
constexpr std::array known_types{
    KnownType{"int8", 1},     KnownType{"uint8", 1},   KnownType{"int32", 4},
    KnownType{"uint32", 4},   KnownType{"int64", 8},   KnownType{"uint64", 8},
    KnownType{"half", 2},     KnownType{"float", 4},   KnownType{"double", 8},
    KnownType{"bfloat16", 2}, KnownType{"f8e4m3", 1},  KnownType{"f8e5m2", 1},
    KnownType{"fp8_e4m3", 1}, KnownType{"fp8_e5m2", 1}};

std::int64_t element_bytes(std::string_view type) {
  const auto* known = std::find_if(known_types.begin(), known_types.end(),
                                   [&](const KnownType& t) { return t.name == type; });
  return known == known_types.end() ? 0 : known->bytes;
}

bool is_word(std::string_view text) {
  return !text.empty() &&
         ((text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z'));
}
bool is_reduction(std::string_view text) { return is_word(text) && text != "N/A"; }

/// "all_reduce" out of ".../all_reduce_perf -b 8"; our names for the programs whose name differs.
std::string program_in(std::string_view text) {
  const std::size_t end = text.find("_perf");
  if (end == std::string_view::npos) return {};
  std::size_t begin = end;
  while (begin > 0 && (text[begin - 1] == '_' || is_word(text.substr(begin - 1, 1)))) --begin;
  const std::string_view name = text.substr(begin, end - begin);
  if (name == "alltoall") return "all_to_all";
  if (name == "alltoallv") return "all_to_all_v";
  if (name == "sendrecv") return "send_recv";
  for (const std::string_view known :
       {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter"})
    if (name == known) return std::string{known};
  return {};
}

/// Bytes over the links per byte of the buffer; 0 where the collective is not known.
double link_factor(const std::string& collective, std::int64_t ranks) {
  const double n = static_cast<double>(ranks);
  if (collective == "all_reduce") return 2 * (n - 1) / n;
  if (collective == "broadcast" || collective == "reduce" || collective == "send_recv") return 1;
  return collective.empty() ? 0 : (n - 1) / n;
}

bool agrees(double printed, double half_unit, double computed, double slack) {
  return std::abs(printed - computed) <= half_unit + slack + 1e-9 * std::abs(computed);
}

}  // namespace

void NcclReader::start_run(const LogLine& line, ImportedLog& log) {
  if (open_ && num_rows_ == 0)
    log.report(line, message("run ", run_,
                             " has no row when the next one starts: two programs may "
                             "have written at the same time"));
  run_ = log.num_runs++;
  open_ = true;
  tool_ = "nccl-tests";
  collective_ = std::exchange(announced_, {});
  ranks_ = last_bytes_ = num_rows_ = num_busbw_ = 0;
  sum_busbw_ = 0;
  has_header_ = false;
  layout_ = {};
}

void NcclReader::take(const LogLine& line, ImportedLog& log) {
  if (line.text.find("rccl-tests") != std::string_view::npos) tool_ = "rccl-tests";
  if (const std::string program = program_in(line.text); !program.empty()) announced_ = program;
  if (line.text.starts_with('#')) return take_comment(line, log);
  std::vector<std::string_view> fields = split_fields(line.text);
  if (!is_digits(fields[0])) return;
  const bool looks_like_a_row =
      fields.size() > 2 && is_digits(fields[1]) && (element_bytes(fields[2]) > 0 || layout_.known);
  if (looks_like_a_row || (open_ && layout_.known)) take_row(line, std::move(fields), log);
}

void NcclReader::take_comment(const LogLine& line, ImportedLog& log) {
  const std::string_view text = line.text.substr(1);
  const std::vector<std::string_view> words = split_fields(text);
  if (words.empty()) return;
  if (words[0] == "nThread") return start_run(line, log);
  if (words[0] == "size" && words.size() > 4) return take_table_header(line, words, log);
  if (text.find("AMD ") != std::string_view::npos) tool_ = "rccl-tests";
  if (words[0] == "Rank" && words.size() > 2) {
    if (const auto rank = parse_integer(words[1])) ranks_ = std::max(ranks_, *rank + 1);
    return;
  }
  take_footer(line, text, log);
}

void NcclReader::take_table_header(const LogLine& line, const std::vector<std::string_view>& names,
                                   ImportedLog& log) {
  if (!open_ || num_rows_ > 0) start_run(line, log);
  const auto has = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  has_header_ = true;
  layout_ = {.known = true,
             .has_reduction = has("redop"),
             .has_root = has("root"),
             .relative_error = has("error"),
             .cpu_time = has("cputime"),
             .extras = {}};
  const auto last = std::find_if(names.rbegin(), names.rend(), [](std::string_view name) {
    return name == "#wrong" || name == "error";
  });
  layout_.extras.assign(last.base(), names.end());
}

void NcclReader::take_footer(const LogLine& line, std::string_view text, ImportedLog& log) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return;
  const std::vector<std::string_view> values = split_fields(text.substr(colon + 1));
  if (values.empty()) return;
  if (text.find("Out of bounds values") != std::string_view::npos && values.back() == "FAILED")
    log.report(line, message("the run's own check failed: ", values[0], " values out of bounds"));
  if (text.find("Avg bus bandwidth") == std::string_view::npos) return;
  const auto average = parse_printed(values[0]);
  if (num_rows_ == 0) {
    log.report(line, "a footer without rows: the table of this run is missing");
  } else if (average && num_busbw_ > 0) {
    const double mean = sum_busbw_ / static_cast<double>(num_busbw_);
    if (!agrees(average->value, average->half_unit, mean, 0.005))
      log.report(line, message("the rows' mean busbw is ", mean, " GB/s, the footer says ",
                               average->value, ": rows are missing or wrong"));
  }
  open_ = false;
  num_rows_ = 0;
  layout_ = {};
}

bool NcclReader::find_layout(const std::vector<std::string_view>& fields) {
  if (layout_.known) return true;
  if (fields.size() < 3 + 2 * group_fields) return false;
  layout_ = {.known = true, .has_reduction = is_reduction(fields[3])};
  const std::size_t head = layout_.has_reduction ? 4 : 3;
  layout_.has_root = fields.size() > head + 2 * group_fields;
  layout_.relative_error =
      fields[head + (layout_.has_root ? 1 : 0) + 3].find('e') != std::string_view::npos;
  return true;
}

void NcclReader::take_row(const LogLine& line, std::vector<std::string_view> fields,
                          ImportedLog& log) {
  const auto bytes = parse_integer(fields[0]);
  if (!bytes) return log.report(line, message("size ", fields[0], " is out of range"));
  if (!find_layout(fields))
    return log.report(line, message("a row that ends after ", fields.size(), " fields"));
  const std::size_t head = 3 + (layout_.has_reduction ? 1 : 0) + (layout_.has_root ? 1 : 0);
  if (fields.size() < head + group_fields)
    return log.report(line, message("a row that ends after ", fields.size(), " fields"));
  if (!open_ || (!has_header_ && *bytes < last_bytes_)) {
    // Rows without a header: the next table starts where sizes fall.
    const Layout layout = layout_;
    start_run(line, log);
    layout_ = layout;
  }
  ImportedRow row{.tool = tool_, .run = run_, .line = line.number, .bytes = *bytes};
  row.count = parse_integer(fields[1]);
  row.dtype = fields[2];
  if (layout_.has_reduction) row.reduction = fields[3];
  if (layout_.has_root) row.root = parse_integer(fields[head - 1]);
  if (!row.count || !is_word(row.dtype) || (layout_.has_root && !row.root))
    return log.report(line, "a row whose count, type or root cannot be read");
  if (ranks_ > 0) row.ranks = ranks_;
  last_bytes_ = *bytes;
  if (collective_.empty()) {
    collective_ = collective_of(row);
    for (ImportedRow& earlier : log.rows)
      if (earlier.run == run_) earlier.collective = collective_;
  }
  row.collective = collective_;
  take_groups(line, fields, head, std::move(row), log);
}

void NcclReader::take_groups(const LogLine& line, const std::vector<std::string_view>& fields,
                             std::size_t begin, ImportedRow row, ImportedLog& log) {
  ++num_rows_;
  const std::size_t end = begin + 2 * group_fields;
  const ImportedRow head = std::move(row);
  bool whole = true;
  for (const bool in_place : {false, true}) {
    Group group;
    row = head;
    row.in_place = in_place;
    take_extras(fields, end, row);
    const std::string reason = read_group(fields, begin + (in_place ? group_fields : 0), group);
    if (!reason.empty()) {
      log.report(line, message(in_place ? "in place: " : "out of place: ", reason));
      whole = false;
      continue;
    }
    if (!group.measured) continue;
    row.time_us = group.time.value;
    row.algbw_GBps = group.algbw.value;
    row.busbw_GBps = group.busbw.value;
    row.num_wrong = group.num_wrong;
    row.max_error = group.max_error;
    sum_busbw_ += group.busbw.value;
    ++num_busbw_;
    check_rates(line, row, group, log);
    log.rows.push_back(row);
  }
  if (whole && fields.size() > end + layout_.extras.size() && !is_time_stamp(fields[end]))
    log.report(line, message("text after the row, starting with ", fields[end], ", is ignored"));
  if (whole && !line.terminated)
    log.report(line, "the last line has no newline: its last number may be cut short");
}

void NcclReader::take_extras(const std::vector<std::string_view>& fields, std::size_t begin,
                             ImportedRow& row) const {
  for (std::size_t i = 0; i < layout_.extras.size() && begin + i < fields.size(); ++i) {
    const std::string& column = layout_.extras[i];
    const bool is_in_place = column.starts_with(in_place_mark);
    const bool has_both =
        is_in_place ||
        std::ranges::find(layout_.extras, message(in_place_mark, column)) != layout_.extras.end();
    if (has_both && is_in_place != row.in_place) continue;
    const std::string name = is_in_place ? column.substr(in_place_mark.size()) : column;
    if (const auto number = parse_printed(fields[begin + i]))
      row.others.emplace_back(name, number->value);
    else
      row.title += message(row.title.empty() ? "" : " ", name, ' ', fields[begin + i]);
  }
}

std::string NcclReader::read_group(const std::vector<std::string_view>& fields, std::size_t begin,
                                   Group& group) const {
  if (fields.size() < begin + group_fields)
    return message("the row ends after ", fields.size(), " fields of ", begin + group_fields);
  const auto* field = &fields[begin];
  if (field[0] == "N/A" && field[1] == "N/A" && field[2] == "N/A") return {};
  PrintedNumber* numbers[] = {&group.time, &group.algbw, &group.busbw};
  for (std::size_t i = 0; i < 3; ++i) {
    const auto number = parse_printed(field[i]);
    if (!number || number->value < 0)
      return message("field ", begin + i + 1, " is ", field[i], ", not a time or a rate");
    *numbers[i] = *number;
  }
  group.measured = true;
  if (field[3] == "N/A") return {};
  const auto wrong = parse_printed(field[3]);
  if (!wrong) return message("field ", begin + 4, " is ", field[3], ", not an error");
  (layout_.relative_error ? group.max_error : group.num_wrong) = wrong->value;
  return {};
}

void NcclReader::check_rates(const LogLine& line, const ImportedRow& row, const Group& group,
                             ImportedLog& log) const {
  const char* where = row.in_place ? "in place: " : "out of place: ";
  if (group.time.value > group.time.half_unit && !layout_.cpu_time) {
    const double expected = static_cast<double>(row.bytes) / group.time.value / 1e3;
    const double slack =
        expected * group.time.half_unit / (group.time.value - group.time.half_unit);
    if (!agrees(group.algbw.value, group.algbw.half_unit, expected, slack))
      log.report(line, message(where, "algbw is ", group.algbw.value, " GB/s, but ", row.bytes,
                               " bytes in ", group.time.value, " us are ", expected));
  }
  const double factor = ranks_ > 0 ? link_factor(row.collective, ranks_) : 0;
  if (factor > 0 && !agrees(group.busbw.value, group.busbw.half_unit, factor * group.algbw.value,
                            factor * group.algbw.half_unit))
    log.report(line, message(where, "busbw is ", group.busbw.value, " GB/s, but ", row.collective,
                             " on ", ranks_, " ranks at algbw ", group.algbw.value, " makes ",
                             factor * group.algbw.value));
}

std::string NcclReader::collective_of(const ImportedRow& row) const {
  // The columns decide only between some of them: count is a member's part where the size is the
  // total, a root and a reduction are printed where there are any.
  const std::int64_t element = element_bytes(row.dtype);
  const bool reduces = !row.reduction.empty() && row.reduction != "none";
  const bool rooted = row.root.value_or(-1) >= 0;
  const bool whole = element > 0 && row.bytes > 0 && *row.count * element == row.bytes;
  const bool part =
      element > 0 && ranks_ > 1 && *row.count > 0 && *row.count * element * ranks_ == row.bytes;
  if (reduces && rooted) return "reduce";
  if (reduces && whole && ranks_ != 1) return "all_reduce";
  if (reduces && part) return "reduce_scatter";
  if (rooted && !reduces && whole && ranks_ != 1) return "broadcast";
  return {};
}

}  // namespace shardmark::bench::collectives
