#include "bench/analyze/windows.hpp"

#include "bench/analyze/csv.hpp"
#include "bench/analyze/unmatched.hpp"
#include "core/error.hpp"
#include "core/nearest.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>

namespace shardmark::bench::analyze {
namespace {

constexpr std::int64_t ever = std::numeric_limits<std::int64_t>::max() / 4;

std::string joined(const std::set<std::int64_t>& numbers) {
  if (numbers.size() > 1 &&
      *numbers.rbegin() - *numbers.begin() + 1 == static_cast<std::int64_t>(numbers.size()))
    return message(*numbers.begin(), '-', *numbers.rbegin());
  std::string text;
  for (const std::int64_t number : numbers) text += message(text.empty() ? "" : ",", number);
  return text;
}

/// The steps of one rank, as windows_of gives them, without the whole trace.
std::vector<Window> steps_of(const Timeline& timeline) {
  std::vector<Window> steps = windows_of(timeline);
  std::erase_if(steps, [](const Window& window) { return !window.span; });
  return steps;
}

std::set<std::int64_t> numbers_of(const Recording& recording) {
  std::set<std::int64_t> numbers;
  for (const RankRecording& rank : recording.ranks)
    for (const Window& step : steps_of(rank.timeline))
      if (const auto number = step_number(step.name)) numbers.insert(*number);
  return numbers;
}

/// The numbers that are chosen, of those that there are.
std::set<std::int64_t> chosen_numbers(const Recording& recording, const StepChoice& choice) {
  const std::set<std::int64_t> there = numbers_of(recording);
  std::set<std::int64_t> chosen;
  if (choice.kind == StepChoice::Kind::last) {
    const auto num = std::min(there.size(), static_cast<std::size_t>(choice.num_last));
    chosen.insert(std::prev(there.end(), static_cast<std::ptrdiff_t>(num)), there.end());
  }
  for (const auto& [first, last] : choice.ranges)
    chosen.insert(there.lower_bound(first), there.upper_bound(last));
  if (chosen.empty())
    throw InputError{there.empty()
                         ? message("--steps ", choice.text,
                                   ": no rank has steps (annotations ProfilerStep#N); leave it "
                                   "out, or choose by time: --window 0,5000")
                         : message("--steps ", choice.text, ": there are only ", joined(there))};
  return chosen;
}

bool is_chosen(const Window& step, const std::set<std::int64_t>& numbers) {
  const auto number = step_number(step.name);
  return number && numbers.contains(*number);
}

std::vector<Span> ranges_named(const Timeline& timeline, const std::string& name) {
  std::vector<Span> spans;
  for (const std::vector<HostRange>* ranges : {&timeline.ranges, &timeline.steps})
    for (const HostRange& range : *ranges)
      if (timeline.names[range.name] == name) spans.push_back(range.time);
  return united(std::move(spans));
}

[[noreturn]] void fail_range(const Recording& recording, const std::string& name) {
  std::set<std::string_view> there;
  for (const RankRecording& rank : recording.ranks)
    for (const HostRange& range : rank.timeline.ranges)
      there.insert(rank.timeline.names[range.name]);
  const std::vector<std::string_view> names{there.begin(), there.end()};
  constexpr std::size_t num_shown = 8, longest = 60;
  std::string list;
  for (std::size_t i = 0; i < std::min(num_shown, names.size()); ++i)
    list += message(i == 0 ? "; there are " : ", ", names[i].substr(0, longest));
  if (names.size() > num_shown) list += message(" and ", names.size() - num_shown, " others");
  if (names.empty()) list = "; the files have no annotations";
  throw InputError{message("--range: no rank has a host range named '", name, "'",
                           did_you_mean(name, names), list)};
}

/// With as many decimals as it needs, so that two windows never have the same name.
std::string shortest_us(std::int64_t ns) {
  std::string text = us_text(ns);
  text.resize(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string name_of_cut(const Options& options, const std::set<std::int64_t>& numbers) {
  std::string name;
  const auto add = [&name](const std::string& part) {
    name += (name.empty() ? "" : " and ") + part;
  };
  if (options.steps.cuts()) add("steps:" + joined(numbers));
  if (options.window)
    add(message("window:", shortest_us(options.window->start_ns), '-',
                shortest_us(options.window->end_ns), "us"));
  if (!options.range.empty()) add("range:" + options.range);
  return name;
}

}  // namespace

RankSpans ChosenWindows::spans() const {
  RankSpans spans;
  for (const RankWindow& window : all) spans.push_back(window.spans);
  return spans;
}

std::optional<std::int64_t> step_number(std::string_view name) {
  const std::size_t mark = name.rfind('#');
  if (mark == std::string_view::npos) return std::nullopt;
  std::int64_t number = 0;
  const char* const end = name.data() + name.size();
  const auto [stopped, error] = std::from_chars(name.data() + mark + 1, end, number);
  if (error != std::errc{} || stopped != end || number < 0) return std::nullopt;
  return number;
}

ClockAlignment own_clocks(const Recording& recording) {
  const std::size_t num_ranks = recording.ranks.size();
  ClockAlignment clocks;
  clocks.offset_ns.assign(num_ranks, 0);
  clocks.bound_ns.assign(num_ranks, num_ranks == 1 ? 0 : -1);
  clocks.spread_ns.assign(num_ranks, -1);
  return clocks;
}

std::int64_t begin_of(const Recording& recording, const std::vector<std::int64_t>& offset_ns) {
  std::optional<std::int64_t> begin;
  for (std::size_t i = 0; i < recording.ranks.size(); ++i) {
    const std::vector<DeviceEvent>& events = recording.ranks[i].timeline.events;
    if (events.empty()) continue;
    const std::int64_t start_ns = events.front().time.start_ns + offset_ns[i];
    begin = begin ? std::min(*begin, start_ns) : start_ns;
  }
  return begin.value_or(0);
}

ChosenWindows choose_windows(const Recording& recording, const Options& options) {
  std::set<std::int64_t> numbers;
  if (options.steps.cuts()) numbers = chosen_numbers(recording, options.steps);
  ChosenWindows chosen{options.cuts() ? name_of_cut(options, numbers) : "trace", {}, {}};
  std::vector<std::int64_t> offset_ns;
  std::int64_t begin_ns = 0;
  if (options.window) {
    const auto across = analyse_across(recording, Window{"trace", std::nullopt});
    offset_ns = (across ? across->clocks : own_clocks(recording)).offset_ns;
    begin_ns = begin_of(recording, offset_ns);
    chosen.warnings = beyond_work(recording, offset_ns, *options.window);
  }
  bool has_range = options.range.empty();
  for (std::size_t i = 0; i < recording.ranks.size(); ++i) {
    const Timeline& timeline = recording.ranks[i].timeline;
    std::vector<Window> steps = steps_of(timeline);
    if (options.steps.kind == StepChoice::Kind::none) steps.clear();
    if (options.steps.cuts())
      std::erase_if(steps, [&](const Window& step) { return !is_chosen(step, numbers); });
    std::vector<Span> spans{{-ever, ever}};
    if (options.steps.cuts()) {
      spans.clear();
      for (const Window& step : steps) spans.push_back(*step.span);
      spans = united(std::move(spans));
    }
    Span limits{-ever, ever};
    if (options.window) {
      const std::int64_t shift_ns = begin_ns - offset_ns[i];
      limits = {options.window->start_ns + shift_ns, options.window->end_ns + shift_ns};
      spans = intersected(spans, std::vector<Span>{limits});
    }
    if (!options.range.empty()) {
      spans = intersected(spans, ranges_named(timeline, options.range));
      has_range = has_range || !ranges_named(timeline, options.range).empty();
    }
    std::vector<RankWindow> cut_steps;
    for (const Window& step : steps)
      cut_steps.push_back(
          {step.name, intersected(spans, std::vector<Span>{*step.span}),
           step.span->start_ns >= limits.start_ns && step.span->end_ns <= limits.end_ns});
    chosen.steps.push_back(std::move(cut_steps));
    chosen.all.push_back({chosen.name, std::nullopt});
    if (options.cuts()) chosen.all.back().spans = std::move(spans);
  }
  if (!has_range) fail_range(recording, options.range);
  return chosen;
}

std::optional<Account> account_in(const Accounting& accounting, const RankRecording& rank,
                                  const RankWindow& window) {
  if (!window.spans) return accounting.of({window.name, std::nullopt});
  std::optional<Account> total;
  for (const Span& span : *window.spans) {
    const std::optional<Account> part = accounting.of({window.name, span});
    if (!part) continue;
    if (!total) {
      total = part;
      continue;
    }
    total->span.end_ns = part->span.end_ns;
    for (const auto member :
         {&Account::span_ns, &Account::busy_ns, &Account::idle_ns, &Account::compute_ns,
          &Account::comm_ns, &Account::copy_ns, &Account::exposed_comm_ns, &Account::overlapped_ns,
          &Account::exposed_copy_ns, &Account::three_way_ns, &Account::residual_ns})
      (*total).*member += (*part).*member;
  }
  if (!total || window.spans->size() == 1) return total;
  total->num_kernels = total->num_comm = total->num_copies = 0;
  const std::vector<DeviceEvent>& events = rank.timeline.events;
  for (std::size_t i = accounting.first_after(window.spans->front().start_ns);
       i < events.size() && events[i].time.start_ns < window.spans->back().end_ns; ++i) {
    if (!lies_in(window.spans, events[i].time)) continue;
    const WorkClass work = rank.classes[i];
    ++(work == WorkClass::memory ? total->num_copies : total->num_kernels);
    if (work == WorkClass::communication) ++total->num_comm;
  }
  return total;
}

}  // namespace shardmark::bench::analyze
