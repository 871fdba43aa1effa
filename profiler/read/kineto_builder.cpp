#include "profiler/read/kineto_builder.hpp"

#include "core/error.hpp"
#include "profiler/read/json_scan.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

namespace shardmark {
namespace {

/// The device, stream or process that a number or text names; what does not fit is folded.
std::int32_t place_of(std::string_view first, std::string_view second) {
  std::optional<std::int64_t> number = integer_of(first);
  if (!number) number = integer_of(second);
  return static_cast<std::int32_t>(number.value_or(-1));
}

/// Calls that can start device work; the rest of the runtime's calls, most of a file, cannot.
bool can_launch(const KinetoEvent& event) {
  std::string storage;
  const std::string_view name = plain_text(event.name, storage);
  constexpr std::array<std::string_view, 5> parts{"aunch", "emcpy", "emset", "submit", "nqueue"};
  return std::ranges::any_of(
      parts, [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

/// Of an event that cannot be read.
std::string why_broken(const KinetoEvent& event) {
  if (event.broken) return "its text is not as that of an event";
  if (event.ts.empty()) return "it has no ts";
  const bool is_start = !nanoseconds_of(event.ts);
  constexpr std::size_t most_shown = 40;
  const std::string value = text_of(is_start ? event.ts : event.dur).substr(0, most_shown);
  const bool is_number =
      !value.empty() && value.find_first_not_of("0123456789+-.eE") == std::string::npos;
  return message(is_start ? "ts " : "dur ", value,
                 is_number ? " us is more than 73 years: is it in nanoseconds?" : " is no number");
}

/// Title of a row in shardmark's own traces: "row 12: tp 2, ...".
bool is_row_title(std::string_view name) {
  constexpr std::string_view row = "row ";
  if (!name.starts_with(row)) return false;
  const std::size_t behind = name.find_first_not_of("0123456789", row.size());
  return behind != std::string_view::npos && behind > row.size() &&
         name.substr(behind).starts_with(": ");
}

}  // namespace

void KinetoBuilder::add_event(std::string_view text, std::int64_t position) {
  ++timeline_.num_events_read;
  const KinetoEvent event = read_kineto_event(text);
  if (event.kind == EventKind::other && !event.broken) return;
  Span time;
  if (!event.broken && read_time(event, time))
    add_interesting(event, time);
  else if (num_broken_++ == 0)
    first_broken_ = message("byte ", position, ": ", why_broken(event));
}

void KinetoBuilder::add_interesting(const KinetoEvent& event, const Span& time) {
  switch (event.kind) {
    case EventKind::kernel:
    case EventKind::copy:
    case EventKind::set:
      add_device_event(event, time);
      break;
    case EventKind::runtime:
      if (can_launch(event)) add_launch(event, time.start_ns);
      break;
    case EventKind::step:
    case EventKind::range:
      add_annotation(event, time);
      break;
    case EventKind::parameters:
      calls_.add_parameters(read_args(event), thread_of(event), time);
      break;
    case EventKind::other:
      break;
  }
}

bool KinetoBuilder::read_time(const KinetoEvent& event, Span& time) {
  const auto start = nanoseconds_of(event.ts);
  const auto duration = event.dur.empty() ? Nanoseconds{} : nanoseconds_of(event.dur);
  if (!start || !duration) return false;
  time = {start->whole, sum_ns(*start, *duration)};
  num_below_ns_ += start->picoseconds != 0 || duration->picoseconds != 0 ? 1 : 0;
  return true;
}

KinetoArgs KinetoBuilder::read_args(const KinetoEvent& event) {
  const KinetoArgs args = read_kineto_args(event.args);
  num_broken_args_ += args.broken ? 1 : 0;
  return args;
}

void KinetoBuilder::add_device_event(const KinetoEvent& event, const Span& time) {
  const KinetoArgs args = read_args(event);
  DeviceEvent work;
  work.time = time;
  work.name = name_of(event.name);
  work.device = place_of(args.device, event.pid);
  work.stream = stream_of(args.stream, event.tid);
  work.context = number_of(number_of_context_, event.pid, args.context);
  const auto is_set = [](std::string_view id) { return integer_of(id).value_or(0) != 0; };
  work.of_graph = is_set(args.graph) || is_set(args.graph_node);
  if (event.kind == EventKind::kernel) {
    work.call = calls_.add(args);
  } else {
    work.work = event.kind == EventKind::copy ? DeviceWork::copy : DeviceWork::set;
    work.between_devices = timeline_.names[work.name].find("PtoP") != std::string::npos;
  }
  timeline_.events.push_back(work);
  ids_.push_back({id_of(args.correlation).value_or(no_id), id_of(args.external_id).value_or(no_id),
                  place_of(event.pid, {})});
}

void KinetoBuilder::add_launch(const KinetoEvent& event, std::int64_t start_ns) {
  if (const auto correlation = id_of(read_args(event).correlation))
    launches_.push_back({*correlation, start_ns, thread_of(event)});
}

void KinetoBuilder::add_annotation(const KinetoEvent& event, const Span& time) {
  const HostEvent host{{time, name_of(event.name)}, place_of(event.pid, {})};
  if (event.kind == EventKind::step) {
    steps_.push_back(host);
    return;
  }
  ranges_.push_back(host);
  const std::string& name = timeline_.names[host.range.name];
  if (is_row_title(name)) row_processes_.push_back(host.process);
  if (name.find("ccl:") != std::string::npos)
    calls_.add_annotation(name, read_args(event), thread_of(event), time);
}

std::uint32_t KinetoBuilder::name_of(std::string_view raw) {
  raw = unquoted(raw);
  if (const auto known = number_of_name_.find(raw); known != number_of_name_.end())
    return known->second;
  bool repaired = false;
  std::string name = text_of(raw, repaired);
  num_repaired_names_ += repaired ? 1 : 0;
  // The same name may be written in several ways.
  const auto [known, is_new] =
      number_of_name_.emplace(name, static_cast<std::uint32_t>(timeline_.names.size()));
  const std::uint32_t number = known->second;
  if (raw != name) number_of_name_.emplace(raw, number);
  if (is_new) timeline_.names.push_back(std::move(name));
  return number;
}

/// The same for the same two texts.
std::uint32_t KinetoBuilder::number_of(Numbers& numbers, std::string_view first,
                                       std::string_view second) {
  std::string both{first};
  both += '/';
  both += second;
  return numbers.emplace(std::move(both), static_cast<std::uint32_t>(numbers.size())).first->second;
}

std::uint32_t KinetoBuilder::thread_of(const KinetoEvent& event) {
  return number_of(number_of_thread_, event.pid, event.tid);
}

/// As DeviceEvent has it.
std::int32_t KinetoBuilder::stream_of(std::string_view stream, std::string_view thread) {
  for (const std::string_view number : {stream, thread})
    if (const auto known = integer_of(number)) return static_cast<std::int32_t>(*known);
  if (unquoted(stream).empty() && unquoted(thread).empty()) return -1;
  return -2 - static_cast<std::int32_t>(number_of(number_of_stream_, stream, thread));
}

void KinetoBuilder::add_member(std::string_view key, std::string_view value) {
  JsonItems items{value};
  std::string_view member, text;
  while (items.next(member, text)) {
    if (key == "distributedInfo") {
      constexpr std::int64_t most = std::numeric_limits<int>::max();
      const std::int64_t number = integer_of(text).value_or(-1);
      const bool is_number = number >= 0 && number <= most;
      if (member == "rank" && is_number) timeline_.rank = static_cast<int>(number);
      if (member == "world_size" && is_number) timeline_.world_size = static_cast<int>(number);
      if (member == "pg_config") calls_.add_group_config(text);
    } else if (key == "deviceProperties") {
      std::int64_t id = -1;
      std::string name;
      JsonItems device{text};
      for (std::string_view property, what; device.next(property, what);) {
        if (property == "id") id = integer_of(what).value_or(-1);
        if (property == "name") name = text_of(what);
      }
      device_names_.emplace_back(id, std::move(name));
    }
  }
}

}  // namespace shardmark
