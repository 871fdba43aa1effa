#include "bench/analyze/stages.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace shardmark::bench {
namespace {

/// Ranks of the world that exchange messages.
struct Links {
  std::map<int, std::set<int>> others;  ///< rank -> those it exchanges them with
  std::set<int> firsts;                 ///< that their group names first
};

struct Messages {
  std::vector<Communication> calls;
  std::vector<Span> others;  ///< all other communication, united
};

void link(Links& links, int a, int b) {
  if (a == b) return;
  links.others[a].insert(b);
  links.others[b].insert(a);
}

/// Parts the communication of a rank into a pipeline's messages and the rest, and notes who
/// exchanges messages with whom.
Messages find_messages(const RankRecording& rank, int world_size,
                       const std::map<std::string, std::string>& axis_of, const ChosenSpans& chosen,
                       Links& links) {
  const Timeline& timeline = rank.timeline;
  Messages messages;
  for (Communication& call : communications_of(rank)) {
    const ProcessGroup* group = call.group == no_index ? nullptr : &timeline.groups[call.group];
    const std::string purpose =
        group == nullptr ? "?" : purpose_of(*group, world_size, axis_of, call.kind);
    const bool is_of_pipeline =
        is_message(call.kind) && (purpose == "pp" || (purpose == "?" && call.peer >= 0));
    if (!is_of_pipeline) {
      messages.others.push_back(call.time);
      continue;
    }
    if (!lies_in(chosen, call.time)) continue;
    if (purpose == "pp" && group->ranks.size() > 1) {
      links.firsts.insert(group->ranks.front());
      for (std::size_t i = 1; i < group->ranks.size(); ++i)
        link(links, group->ranks[i - 1], group->ranks[i]);
    } else if (call.peer >= 0)
      link(links, timeline.rank, call.peer);
    messages.calls.push_back(std::move(call));
  }
  messages.others = united(std::move(messages.others));
  return messages;
}

/// The ranks linked to `start`, along the chain: from the first of a group, else from the end with
/// the lower number, else, around a ring, from the lowest.
std::vector<int> chain_of(const Links& links, int start) {
  std::set<int> all{start};
  for (std::vector<int> open{start}; !open.empty();) {
    const int rank = open.back();
    open.pop_back();
    for (const int other : links.others.at(rank))
      if (all.insert(other).second) open.push_back(other);
  }
  auto begin = std::ranges::find_if(all, [&](int rank) { return links.firsts.contains(rank); });
  if (begin == all.end())
    begin = std::ranges::find_if(all, [&](int rank) { return links.others.at(rank).size() == 1; });
  std::vector<int> chain{begin == all.end() ? *all.begin() : *begin};
  all.erase(chain.front());
  while (!all.empty()) {
    const std::set<int>& others = links.others.at(chain.back());
    const auto next = std::ranges::find_if(others, [&](int rank) { return all.contains(rank); });
    chain.push_back(next == others.end() ? *all.begin() : *next);
    all.erase(chain.back());
  }
  return chain;
}

std::vector<Span> shifted(std::vector<Span> spans, std::int64_t by_ns) {
  for (Span& span : spans) span = {span.start_ns + by_ns, span.end_ns + by_ns};
  return spans;
}

/// In a trace of ours each step is a row of a sweep, and between them nothing was recorded.
bool has_rows(const Timeline& timeline) {
  return timeline.format == "shardmark" && !timeline.steps.empty();
}

/// When a rank was looked at: its spans, or its rows, or from the first start to the last end of
/// its work.
std::vector<Span> own_window(const RankRecording& rank, const ChosenSpans& chosen) {
  if (chosen) return *chosen;
  std::vector<Span> window;
  if (has_rows(rank.timeline)) {
    for (const HostRange& row : rank.timeline.steps) window.push_back(row.time);
    return united(std::move(window));
  }
  for (const DeviceEvent& event : rank.timeline.events)
    if (window.empty())
      window.push_back(event.time);
    else
      window[0].end_ns = std::max(window[0].end_ns, event.time.end_ns);
  return window;
}

/// Parts of the bubble before the first and after the last compute of each of `windows`.
void split_ends(StageRow& row, const std::vector<Span>& windows, const std::vector<Span>& compute,
                const std::vector<Span>& bubble) {
  for (const Span& window : windows) {
    const std::vector<Span> inside = intersected(compute, std::vector<Span>{window});
    const std::int64_t first = inside.empty() ? window.end_ns : inside.front().start_ns;
    const std::int64_t last = inside.empty() ? window.end_ns : inside.back().end_ns;
    row.fill_ns += length_ns(intersected(bubble, std::vector<Span>{{window.start_ns, first}}));
    row.drain_ns += length_ns(intersected(bubble, std::vector<Span>{{last, window.end_ns}}));
  }
}

/// `windows`: the common ones, on the rank's own clock.
StageRow make_row(const RankRecording& rank, const Messages& messages,
                  const std::vector<Span>& windows) {
  StageRow row;
  std::vector<Span> in_messages;
  for (const Communication& call : messages.calls) {
    ++row.num_messages;
    row.message_bytes += std::max<std::int64_t>(call.bytes, 0);
    in_messages.push_back(call.time);
  }
  in_messages = intersected(united(std::move(in_messages)), windows);
  const std::vector<Span> compute = busy_spans(rank, WorkClass::compute);
  const std::vector<Span> without_compute = subtracted(windows, compute);
  const std::vector<Span> without_collectives = subtracted(without_compute, messages.others);
  const std::vector<Span> bubble =
      subtracted(without_collectives, busy_spans(rank, WorkClass::memory));
  row.message_ns = length_ns(in_messages);
  row.window_ns = length_ns(windows);
  row.compute_ns = row.window_ns - length_ns(without_compute);
  row.collective_ns = length_ns(without_compute) - length_ns(without_collectives);
  row.bubble_ns = length_ns(bubble);
  row.copy_ns = length_ns(without_collectives) - row.bubble_ns;
  row.wait_ns = length_ns(intersected(in_messages, bubble));
  row.idle_ns = row.bubble_ns - row.wait_ns;
  split_ends(row, windows, compute, bubble);
  if (row.window_ns > 0)
    row.bubble_of_total = static_cast<double>(row.bubble_ns) / static_cast<double>(row.window_ns);
  return row;
}

/// What is known before a pipeline is looked at.
struct Input {
  const Recording& recording;
  const RankSpans& spans;
  const ClockAlignment& clocks;
  std::vector<Messages> messages;

  /// Position in Recording::ranks; nothing if the rank has no file.
  [[nodiscard]] std::optional<std::size_t> position_of(int rank) const {
    for (std::size_t i = 0; i < recording.ranks.size(); ++i)
      if (recording.ranks[i].timeline.rank == rank) return i;
    return std::nullopt;
  }
};

/// A rank of a pipeline that has a file.
struct Member {
  std::size_t position;
  int stage;
  std::vector<Span> own;  ///< own_window on the first rank's clock
};

/// The windows of the members together; of rows those that any of them sends or receives in.
std::vector<Span> common_windows(const Input& input, const std::vector<Member>& members) {
  std::vector<Span> common;
  for (const Member& member : members)
    common.insert(common.end(), member.own.begin(), member.own.end());
  common = united(std::move(common));
  if (input.spans.front() || common.empty()) return common;
  if (!has_rows(input.recording.ranks[members.front().position].timeline))
    return {{common.front().start_ns, common.back().end_ns}};
  std::vector<Span> starts;
  for (const Member& member : members)
    for (const Communication& call : input.messages[member.position].calls) {
      const std::int64_t start = call.time.start_ns + input.clocks.offset_ns[member.position];
      starts.push_back({start, start + 1});
    }
  starts = united(std::move(starts));
  std::erase_if(
      common, [&](const Span& row) { return intersected(std::vector<Span>{row}, starts).empty(); });
  return common;
}

void add_pipeline(const Input& input, const std::vector<int>& chain, int pipeline, Stages& stages) {
  std::vector<Member> members;
  std::string missing, unaligned;
  for (std::size_t stage = 0; stage < chain.size(); ++stage) {
    const std::optional<std::size_t> at = input.position_of(chain[stage]);
    if (!at) {
      missing += message(missing.empty() ? "" : ", ", chain[stage]);
      continue;
    }
    const RankRecording& rank = input.recording.ranks[*at];
    members.push_back({*at, static_cast<int>(stage),
                       shifted(own_window(rank, input.spans[*at]), input.clocks.offset_ns[*at])});
    const RankRecording& first = input.recording.ranks[members.front().position];
    if (first.timeline.file != rank.timeline.file && !input.clocks.knows(*at))
      unaligned += message(unaligned.empty() ? "" : ", ", chain[stage]);
  }
  const std::vector<Span> common = common_windows(input, members);
  for (const Member& member : members) {
    std::vector<Span> windows = common;
    // A rank that a row leaves idle has no part in it.
    std::erase_if(windows, [&](const Span& window) {
      return intersected(std::vector<Span>{window}, member.own).empty();
    });
    StageRow row = make_row(input.recording.ranks[member.position], input.messages[member.position],
                            shifted(std::move(windows), -input.clocks.offset_ns[member.position]));
    row.rank = static_cast<int>(member.position);
    row.pipeline = pipeline;
    row.stage = member.stage;
    stages.rows.push_back(row);
  }
  if (!missing.empty())
    stages.warnings.push_back(message("pipeline ", pipeline, ": rank ", missing,
                                      " has no file, so the common window may be longer"));
  if (!unaligned.empty())
    stages.warnings.push_back(message("pipeline ", pipeline, ": the clock of rank ", unaligned,
                                      " is not aligned; the common window takes it as it is"));
}

}  // namespace

Stages analyse_stages(const Recording& recording, const RankSpans& spans,
                      const std::map<std::string, std::string>& axis_of,
                      const ClockAlignment& clocks) {
  Links links;
  Input input{recording, spans, clocks, {}};
  for (std::size_t i = 0; i < recording.ranks.size(); ++i)
    input.messages.push_back(
        find_messages(recording.ranks[i], recording.world_size, axis_of, spans[i], links));
  Stages stages;
  std::set<int> placed;
  int pipeline = 0;
  for (const auto& [rank, others] : links.others) {
    if (placed.contains(rank)) continue;
    const std::vector<int> chain = chain_of(links, rank);
    placed.insert(chain.begin(), chain.end());
    add_pipeline(input, chain, pipeline++, stages);
  }
  return stages;
}

}  // namespace shardmark::bench
