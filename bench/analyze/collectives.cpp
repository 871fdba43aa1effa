#include "bench/analyze/collectives.hpp"

#include "bench/harness/statistics.hpp"
#include "collectives/collective.hpp"

#include <algorithm>
#include <cctype>
#include <limits>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace shardmark::bench {
namespace {

double to_us(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

std::string lower(std::string_view text) {
  std::string result;
  for (const char c : text)
    result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

/// How much of a span lies under united ones.
class Cover {
 public:
  explicit Cover(std::vector<Span> spans) : spans_{std::move(spans)} {
    for (const Span& span : spans_)
      before_ns_.push_back(before_ns_.back() + span.end_ns - span.start_ns);
  }
  [[nodiscard]] std::int64_t within_ns(const Span& span) const {
    return until_ns(span.end_ns) - until_ns(span.start_ns);
  }

 private:
  [[nodiscard]] std::int64_t until_ns(std::int64_t time_ns) const {
    const auto next = std::ranges::upper_bound(spans_, time_ns, {}, &Span::start_ns);
    if (next == spans_.begin()) return 0;
    const Span& last = *(next - 1);
    const auto place = static_cast<std::size_t>(next - 1 - spans_.begin());
    return before_ns_[place] + std::min(time_ns, last.end_ns) - last.start_ns;
  }

  std::vector<Span> spans_;
  std::vector<std::int64_t> before_ns_{0};  ///< length of all spans before each
};

/// Looking for kinds in words is slow, and there are few words.
class Kinds {
 public:
  const std::string& of_call(const CommunicationCall& call) {
    const auto [known, is_new] = of_call_.try_emplace(call.kind);
    if (is_new) known->second = kind_of_call(call);
    // Sizes differ per member; PyTorch writes all_to_allv.
    if (is_new && known->second == "all_to_all" && call.kind.ends_with('v'))
      known->second = "all_to_all_v";
    return known->second;
  }
  const std::string& of_kernel(const std::string& name) {
    const auto [known, is_new] = of_kernel_.try_emplace(name);
    if (is_new) known->second = kind_of_kernel(name);
    return known->second;
  }

 private:
  std::unordered_map<std::string, std::string> of_call_, of_kernel_;
};

}  // namespace

int bytes_of_dtype(std::string_view dtype) {
  static const std::map<std::string, int, std::less<>> sizes{
      {"byte", 1},          {"char", 1},         {"unsigned char", 1},  {"signed char", 1},
      {"bool", 1},          {"qint8", 1},        {"quint8", 1},         {"short", 2},
      {"short int", 2},     {"uint16", 2},       {"half", 2},           {"bfloat16", 2},
      {"int", 4},           {"uint32", 4},       {"qint32", 4},         {"float", 4},
      {"complexhalf", 4},   {"long", 8},         {"long int", 8},       {"uint64", 8},
      {"double", 8},        {"complexfloat", 8}, {"complex<float>", 8}, {"complex<double>", 16},
      {"complexdouble", 16}};
  const std::string lowered = lower(dtype);
  std::string_view word = lowered;
  if (word.starts_with("c10::")) word.remove_prefix(5);
  if (word.starts_with("float8_")) return 1;
  const auto found = sizes.find(word);
  return found == sizes.end() ? 0 : found->second;
}

std::int64_t bytes_of_call(const CommunicationCall& call, std::string_view kind, int group_size) {
  const std::int64_t in = call.elements_in, out = call.elements_out, n = group_size;
  const int size = bytes_of_dtype(call.dtype);
  std::int64_t elements = std::max(in, out);
  // Where only one side of the root or of the block is known, the other follows.
  const bool grows = kind == "all_gather" || kind == "gather";
  const bool shrinks = kind == "reduce_scatter" || kind == "scatter";
  const std::int64_t block = grows ? in : out, total = grows ? out : in;
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() / 16;
  if ((grows || shrinks) && total <= 0 && block > 0)
    elements = n > 0 && block <= most / n ? n * block : -1;
  if (size == 0 || elements < 0 || elements > most || kind == "barrier") return -1;
  return elements * size;
}

Bandwidth bandwidth_of(std::string_view kind, int group_size, std::int64_t bytes,
                       double duration_us) {
  if (bytes < 0 || duration_us <= 0) return {};
  Bandwidth result{static_cast<double>(bytes) / duration_us / 1e3, 0};
  const auto known = is_message(kind) ? Collective::send_recv : parse_collective(kind);
  if (known && group_size > 1)
    result.busbw_GBps = result.algbw_GBps * busbw_factor(*known, group_size);
  return result;
}

std::vector<Communication> communications_of(const RankRecording& rank) {
  const Timeline& timeline = rank.timeline;
  Kinds kinds;
  std::unordered_map<std::uint32_t, std::size_t> first_parts;  // of a call, in result
  std::vector<Communication> result;
  for (std::size_t i = 0; i < timeline.events.size(); ++i) {
    const DeviceEvent& event = timeline.events[i];
    if (rank.classes.at(i) != WorkClass::communication || event.time.end_ns < event.time.start_ns)
      continue;
    Communication found;
    found.time = event.time;
    found.event = static_cast<std::uint32_t>(i);
    if (event.call < timeline.calls.size()) {
      const CommunicationCall& call = timeline.calls[event.call];
      if (call.group < timeline.groups.size()) found.group = call.group;
      const int size = found.group == no_index ? 0 : size_of(timeline.groups[found.group]);
      found.kind = kinds.of_call(call);
      found.bytes = bytes_of_call(call, found.kind, size);
      found.sequence = call.sequence;
      found.peer = call.peer;
      found.dtype = call.dtype;
    }
    if (found.kind.empty() && event.name < timeline.names.size())
      found.kind = kinds.of_kernel(timeline.names[event.name]);
    if (found.kind.empty()) found.kind = std::string{"?"};
    if (timeline.format == "shardmark" && found.sequence >= 0) {
      const auto [first, is_new] = first_parts.try_emplace(event.call, result.size());
      if (!is_new) {
        Span& whole = result[first->second].time;
        whole.end_ns = std::max(whole.end_ns, found.time.end_ns);
        continue;
      }
    }
    result.push_back(std::move(found));
  }
  return result;
}

std::vector<Span> busy_spans(const RankRecording& rank, WorkClass work) {
  std::vector<Span> spans;
  for (std::size_t i = 0; i < rank.timeline.events.size(); ++i)
    if (rank.classes.at(i) == work) spans.push_back(rank.timeline.events[i].time);
  return united(std::move(spans));
}

RankSpans spans_on(const Recording& recording, const Window& window) {
  RankSpans spans(recording.ranks.size());
  if (window.span) std::ranges::fill(spans, std::vector<Span>{*window.span});
  return spans;
}

namespace {

struct RowCalls {
  std::vector<Span> times;
  std::vector<double> durations_us;
  std::int64_t total_ns{0};  ///< in the spans
  std::uint32_t first_event{0};
};

/// `exposed`: communication that is not under compute. Calls that run at once share it.
CollectiveRow make_row(const RowCalls& calls, const ChosenSpans& chosen, const Cover& exposed) {
  CollectiveRow row;
  row.count = static_cast<std::int64_t>(calls.durations_us.size());
  row.total_us = to_us(calls.total_ns);
  std::int64_t exposed_ns = 0;
  for (const Span& span : cut_to(chosen, united(calls.times)))
    exposed_ns += exposed.within_ns(span);
  row.exposed_us = to_us(exposed_ns);
  row.p50_us = percentile(calls.durations_us, 50);
  row.p95_us = percentile(calls.durations_us, 95);
  row.min_us = *std::ranges::min_element(calls.durations_us);
  row.max_us = *std::ranges::max_element(calls.durations_us);
  return row;
}

void add_rows(const RankRecording& rank, const ChosenSpans& chosen, int world_size,
              const std::map<std::string, std::string>& axis_of, std::vector<CollectiveRow>& rows) {
  const Timeline& timeline = rank.timeline;
  const Cover exposed{
      subtracted(busy_spans(rank, WorkClass::communication), busy_spans(rank, WorkClass::compute))};
  using Key = std::tuple<std::string, std::uint32_t, std::string_view, std::int64_t>;
  std::map<Key, RowCalls> calls;
  for (const Communication& call : communications_of(rank)) {
    if (!lies_in(chosen, call.time)) continue;
    RowCalls& row = calls[{call.kind, call.group, call.dtype, call.bytes}];
    if (row.durations_us.empty()) row.first_event = call.event;
    row.times.push_back(call.time);
    row.durations_us.push_back(to_us(call.time.end_ns - call.time.start_ns));
    row.total_ns += length_in(chosen, call.time);
  }
  const auto first = static_cast<std::ptrdiff_t>(rows.size());
  for (const auto& [key, of_key] : calls) {
    CollectiveRow row = make_row(of_key, chosen, exposed);
    row.rank = timeline.rank;
    std::tie(row.kind, std::ignore, row.dtype, row.bytes) = key;
    if (const std::uint32_t group = std::get<1>(key); group != no_index) {
      row.group = label_of(timeline.groups[group]);
      row.group_size = size_of(timeline.groups[group]);
      row.purpose = purpose_of(timeline.groups[group], world_size, axis_of, row.kind);
    }
    const Bandwidth rates = bandwidth_of(row.kind, row.group_size, row.bytes, row.p50_us);
    row.algbw_GBps = rates.algbw_GBps;
    row.busbw_GBps = rates.busbw_GBps;
    const std::uint32_t name = timeline.events[of_key.first_event].name;
    if (name < timeline.names.size()) row.kernel = timeline.names[name];
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin() + first, rows.end(),
                   [](const auto& a, const auto& b) { return a.total_us > b.total_us; });
}

}  // namespace

std::vector<CollectiveRow> collective_rows(const Recording& recording, const RankSpans& spans,
                                           const std::map<std::string, std::string>& axis_of) {
  std::vector<CollectiveRow> rows;
  for (std::size_t i = 0; i < recording.ranks.size(); ++i)
    add_rows(recording.ranks[i], spans.at(i), recording.world_size, axis_of, rows);
  return rows;
}

std::vector<CollectiveRow> collective_rows(const Recording& recording, const Window& window,
                                           const std::map<std::string, std::string>& axis_of) {
  return collective_rows(recording, spans_on(recording, window), axis_of);
}

}  // namespace shardmark::bench
