#include "profiler/read/kineto_event.hpp"

#include "profiler/read/json_scan.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace shardmark {
namespace {

enum class Category { other, kernel, copy, set, mtia, runtime, annotation, operation };

bool equals_any_case(std::string_view a, std::string_view lower) {
  return std::ranges::equal(a, lower, [](char x, char y) {
    return (x >= 'A' && x <= 'Z' ? static_cast<char>(x | 0x20) : x) == y;
  });
}

Category category_of(std::string_view value) {
  struct Known {
    std::string_view name;
    Category category;
  };
  // The most frequent ones first.
  static constexpr std::array<Known, 17> known{{
      {"cpu_op", Category::operation},
      {"kernel", Category::kernel},
      {"cuda_runtime", Category::runtime},
      {"user_annotation", Category::annotation},
      {"operator", Category::operation},
      {"runtime", Category::runtime},
      {"mtia_ccp_events", Category::mtia},
      {"cuda_driver", Category::runtime},
      {"gpu_memcpy", Category::copy},
      {"gpu_memset", Category::set},
      {"memcpy", Category::copy},
      {"memset", Category::set},
      {"hip_runtime", Category::runtime},
      {"mtia_runtime", Category::runtime},
      {"xpu_runtime", Category::runtime},
      {"privateuse1_runtime", Category::runtime},
      {"privateuse1_driver", Category::runtime},
  }};
  std::string storage;
  const std::string_view name = plain_text(value, storage);
  for (const Known& candidate : known)
    if (equals_any_case(name, candidate.name)) return candidate.category;
  return Category::other;
}

EventKind kind_of(Category category, std::string_view raw_name) {
  std::string storage;
  const std::string_view name = plain_text(raw_name, storage);
  const bool is_step = name.starts_with("ProfilerStep");
  switch (category) {
    case Category::kernel:
      return EventKind::kernel;
    case Category::copy:
      return EventKind::copy;
    case Category::set:
      return EventKind::set;
    case Category::mtia:
      return name.starts_with("dma") ? EventKind::copy : EventKind::kernel;
    case Category::runtime:
      return EventKind::runtime;
    case Category::annotation:
      return is_step ? EventKind::step : EventKind::range;
    case Category::operation:
      if (name == "record_param_comms") return EventKind::parameters;
      return is_step ? EventKind::step : EventKind::other;
    case Category::other:
      break;
  }
  return EventKind::other;
}

/// Digits of a decimal number without sign and leading zeros.
struct Decimal {
  std::array<char, 64> digits{};  ///< more of them than that do not matter
  int num_digits{0};
  std::int64_t point{0};  ///< digits before the decimal point; may be negative
  bool is_negative{false}, is_inexact{false};
};

std::optional<Decimal> decimal_of(std::string_view text) {
  Decimal number;
  if (!text.empty() && (text.front() == '-' || text.front() == '+')) {
    number.is_negative = text.front() == '-';
    text.remove_prefix(1);
  }
  bool has_digit = false, is_fraction = false;
  for (; !text.empty() && text.front() != 'e' && text.front() != 'E'; text.remove_prefix(1)) {
    const char c = text.front();
    if (c == '.' && !is_fraction) {
      is_fraction = true;
      continue;
    }
    if (c < '0' || c > '9') return std::nullopt;
    has_digit = true;
    const bool is_leading = c == '0' && number.num_digits == 0;
    if (!is_fraction && !is_leading) ++number.point;
    if (is_fraction && is_leading) --number.point;
    if (is_leading) continue;
    if (number.num_digits < static_cast<int>(number.digits.size()))
      number.digits[static_cast<std::size_t>(number.num_digits++)] = c;
    else
      number.is_inexact = number.is_inexact || c != '0';
  }
  if (!has_digit) return std::nullopt;
  if (text.empty()) return number;
  text.remove_prefix(text.size() > 1 && text[1] == '+' ? 2 : 1);
  int exponent = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), exponent);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  number.point += exponent;
  return number;
}

template <class Number>
std::optional<Number> parse(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

KinetoEvent read_kineto_event(std::string_view text) {
  KinetoEvent event;
  std::string_view cat, ph, key, value;
  std::string storage;
  JsonItems items{text};
  while (items.next(key, value)) {
    if (key == "ph") {
      // Other phases are one letter, too; more of it is text that lost its place.
      if (plain_text(value, storage) != "X") {
        event = {};
        event.broken = value.size() != 3;
        return event;
      }
      ph = value;
    } else if (key == "cat") {
      cat = value;
      if (category_of(cat) == Category::other) return {};
    } else if (key == "name") {
      event.name = value;
    } else if (key == "pid") {
      event.pid = value;
    } else if (key == "tid") {
      event.tid = value;
    } else if (key == "ts") {
      event.ts = value;
    } else if (key == "dur") {
      event.dur = value;
    } else if (key == "args") {
      event.args = value;
    }
    if (!cat.empty() && !event.name.empty() && event.kind == EventKind::other) {
      event.kind = kind_of(category_of(cat), event.name);
      if (event.kind == EventKind::other) return {};
    }
  }
  event.broken = items.broken();
  if (event.kind == EventKind::other && !cat.empty())
    event.kind = kind_of(category_of(cat), event.name);
  if (ph.empty() && !event.broken) return {};
  return event;
}

KinetoArgs read_kineto_args(std::string_view args) {
  using Member = std::string_view KinetoArgs::*;
  static constexpr std::array<std::pair<std::string_view, Member>, 24> known{{
      {"correlation", &KinetoArgs::correlation},
      {"External id", &KinetoArgs::external_id},
      {"external id", &KinetoArgs::external_id},
      {"device", &KinetoArgs::device},
      {"inDevice", &KinetoArgs::device},
      {"stream", &KinetoArgs::stream},
      {"context", &KinetoArgs::context},
      {"graph id", &KinetoArgs::graph},
      {"graph node id", &KinetoArgs::graph_node},
      {"Collective name", &KinetoArgs::collective},
      {"In msg nelems", &KinetoArgs::elements_in},
      {"Out msg nelems", &KinetoArgs::elements_out},
      {"dtype", &KinetoArgs::dtype},
      {"Seq", &KinetoArgs::sequence},
      {"Src Rank", &KinetoArgs::source},
      {"Dst Rank", &KinetoArgs::destination},
      {"Process Group Name", &KinetoArgs::group_name},
      {"Process Group Description", &KinetoArgs::group_description},
      {"Process Group Ranks", &KinetoArgs::group_ranks},
      {"Group size", &KinetoArgs::group_size},
      {"Global rank start", &KinetoArgs::first_rank},
      {"Global rank stride", &KinetoArgs::rank_stride},
      {"Input Dims", &KinetoArgs::input_dims},
      {"Input type", &KinetoArgs::input_type},
  }};
  KinetoArgs found;
  if (args.empty()) return found;
  JsonItems items{args};
  std::string_view key, value;
  while (items.next(key, value))
    for (const auto& [name, member] : known)
      if (key == name) found.*member = value;
  found.broken = items.broken();
  return found;
}

std::optional<Nanoseconds> nanoseconds_of(std::string_view value) {
  constexpr int most_digits = 19;
  constexpr std::int64_t most_ns = std::int64_t{1} << 61;
  auto number = decimal_of(unquoted(value));
  if (!number) return std::nullopt;
  if (number->num_digits == 0) return Nanoseconds{};
  number->point += 3;  // microseconds to nanoseconds
  if (number->point > most_digits) return std::nullopt;
  const auto digit = [&](std::int64_t at) {
    return at >= 0 && at < number->num_digits ? number->digits[static_cast<std::size_t>(at)] - '0'
                                              : 0;
  };
  Nanoseconds time;
  for (std::int64_t at = 0; at < number->point; ++at) {
    if (time.whole > most_ns / 10) return std::nullopt;
    time.whole = time.whole * 10 + digit(at);
  }
  for (std::int64_t at = number->point; at < number->point + 3; ++at)
    time.picoseconds = time.picoseconds * 10 + digit(at);
  // What is even smaller only matters to which side a negative number is rounded.
  const bool has_rest = number->is_inexact || number->point + 3 < number->num_digits;
  if (!number->is_negative) return time;
  if (has_rest) ++time.picoseconds;
  time.whole = -time.whole;
  if (time.picoseconds > 0) {
    --time.whole;
    time.picoseconds = 1000 - time.picoseconds;
  }
  return time;
}

std::int64_t sum_ns(const Nanoseconds& a, const Nanoseconds& b) {
  return a.whole + b.whole + (a.picoseconds + b.picoseconds) / 1000;
}

std::optional<std::int64_t> integer_of(std::string_view value) {
  std::string_view text = unquoted(value);
  if (const auto number = parse<std::int64_t>(text)) return number;
  const std::size_t before = text.find_last_not_of("0123456789");
  if (before == std::string_view::npos || text[before] != ' ') return std::nullopt;
  return parse<std::int64_t>(text.substr(before + 1));
}

std::optional<std::uint64_t> id_of(std::string_view value) {
  const std::string_view text = unquoted(value);
  if (const auto number = parse<std::uint64_t>(text)) return number;
  const auto negative = parse<std::int64_t>(text);
  if (!negative) return std::nullopt;
  return static_cast<std::uint64_t>(*negative);
}

}  // namespace shardmark
