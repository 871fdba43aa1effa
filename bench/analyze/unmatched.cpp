#include "bench/analyze/unmatched.hpp"

#include "bench/analyze/collectives.hpp"
#include "bench/analyze/csv.hpp"
#include "bench/analyze/time_text.hpp"
#include "bench/analyze/windows.hpp"
#include "core/error.hpp"
#include "core/nearest.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

namespace shardmark::bench::analyze {
namespace {

bool adds_kernels(const Recording& recording, CommRule rule, const std::string& pattern) {
  return std::ranges::any_of(recording.ranks, [&](const RankRecording& rank) {
    return classify(rank.timeline, rule, {pattern}) != classify(rank.timeline, rule, {});
  });
}

/// All that --axis-of can name a group by.
std::set<std::string> names_of_groups(const Recording& recording) {
  std::set<std::string> names;
  for (const RankRecording& rank : recording.ranks)
    for (const ProcessGroup& group : rank.timeline.groups)
      for (const std::string& name : {group.name, group.description, label_of(group)})
        if (!name.empty()) names.insert(name);
  return names;
}

std::string unknown_group(const std::string& group, const std::string& axis,
                          const std::set<std::string>& there) {
  const std::vector<std::string_view> names{there.begin(), there.end()};
  constexpr std::size_t num_shown = 8;
  std::string list;
  for (std::size_t i = 0; i < std::min(num_shown, names.size()); ++i)
    list += message(i == 0 ? "; there are " : ", ", names[i]);
  if (names.size() > num_shown) list += message(" and ", names.size() - num_shown, " others");
  if (names.empty()) list = "; the files name no groups";
  return message("--axis-of ", group, '=', axis, ": no rank has a group of that name",
                 did_you_mean(group, names), list);
}

}  // namespace

std::vector<std::string> unmatched_options(const Recording& recording, const Options& options) {
  std::vector<std::string> sentences;
  for (const std::string& pattern : options.comm_patterns)
    if (!adds_kernels(recording, options.rule, pattern))
      sentences.push_back(message("--comm-pattern ", pattern,
                                  ": no kernel that would not be counted anyway has such a name"));
  if (options.axis_of.empty()) return sentences;
  const std::set<std::string> there = names_of_groups(recording);
  for (const auto& [group, axis] : options.axis_of)
    if (!there.contains(group)) sentences.push_back(unknown_group(group, axis, there));
  return sentences;
}

std::vector<std::string> beyond_work(const Recording& recording,
                                     const std::vector<std::int64_t>& offset_ns,
                                     const Span& window) {
  const std::int64_t begin_ns = begin_of(recording, offset_ns);
  std::optional<std::int64_t> last_ns;
  for (std::size_t i = 0; i < recording.ranks.size(); ++i)
    for (const DeviceEvent& event : recording.ranks[i].timeline.events)
      last_ns = std::max(last_ns.value_or(begin_ns), event.time.end_ns + offset_ns[i]);
  if (!last_ns) return {};
  const std::int64_t length_ns = *last_ns - begin_ns;
  const std::string end = message("the last device work ends at ", us_text(length_ns), " us");
  if (window.start_ns >= length_ns)
    throw InputError{message("--window begins at ", us_text(window.start_ns), " us, but ", end,
                             "; try --window 0,", us_text(length_ns))};
  if (window.end_ns <= length_ns) return {};
  return {message("--window goes on after ", end, ": ", time_text(window.end_ns - length_ns),
                  " of it count as idle")};
}

}  // namespace shardmark::bench::analyze
