#include "bench/analyze/recording.hpp"

#include "bench/analyze/recording_parts.hpp"
#include "core/error.hpp"
#include "profiler/impossible_times.hpp"
#include "profiler/sentences.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace shardmark::bench {
namespace {

using Recorded = shardmark::Timeline;

/// Worlds beyond this are misread numbers.
constexpr int max_world_size = 1 << 20;

std::string list_of(const std::vector<int>& numbers) {
  constexpr std::size_t most = 16;
  std::string text;
  for (std::size_t i = 0; i < std::min(numbers.size(), most); ++i)
    text += message(i > 0 ? ", " : "", numbers[i]);
  return numbers.size() > most ? text + ", ..." : text;
}

/// Exports of several devices, one file per node: each starts again from device 0.
void number_nodes(std::vector<Recorded>& timelines, Recording& recording) {
  std::map<std::string, int> num_devices;  // of each file with several
  for (const Recorded& timeline : timelines)
    if (timeline.format.starts_with("Nsight")) {
      int& num = num_devices[timeline.file];
      num = std::max(num, timeline.rank + 1);
    }
  std::erase_if(num_devices, [&](const auto& file) {
    return std::ranges::count(timelines, file.first, &Recorded::file) < 2;
  });
  if (num_devices.size() < 2) return;
  std::string file;
  int first = 0, next = 0;
  for (Recorded& timeline : timelines) {
    const auto devices = num_devices.find(timeline.file);
    if (devices == num_devices.end()) continue;
    if (std::exchange(file, timeline.file) != timeline.file)
      first = std::exchange(next, next + devices->second);
    timeline.rank += first;
  }
  recording.warnings.push_back(
      message(num_devices.size(),
              " exports have several devices each; they are taken for nodes in "
              "the order of the files, with ranks that count through"));
}

void number_ranks(std::vector<Recorded>& timelines, Recording& recording) {
  std::set<int> taken;
  for (const Recorded& timeline : timelines) taken.insert(timeline.rank);
  std::vector<int> given;
  for (Recorded& timeline : timelines) {
    if (timeline.rank >= 0) continue;
    int rank = 0;
    while (taken.contains(rank)) ++rank;
    taken.insert(rank);
    timeline.rank = rank;
    given.push_back(rank);
  }
  if (!given.empty() && timelines.size() > 1)
    recording.warnings.push_back(
        message(counted(static_cast<std::int64_t>(given.size()), "recording", "does", "do"),
                " not say of which rank it is: taken for rank ", list_of(given),
                " in the order of the files (\"rank3\" in a file's name would tell)"));
}

void leave_out_duplicates(std::vector<Recorded>& timelines, Recording& recording) {
  std::map<std::string, int> num_ranks;  // of each file
  for (const Recorded& timeline : timelines) ++num_ranks[timeline.file];
  std::vector<Recorded> kept;
  for (Recorded& timeline : timelines) {
    const auto first = std::ranges::find(kept, timeline.rank, &Recorded::rank);
    if (first == kept.end())
      kept.push_back(std::move(timeline));
    else if (num_ranks[timeline.file] > 1)
      recording.errors.push_back(message("rank ", timeline.rank, " of ", timeline.file,
                                         " is left out: ", first->file, " has one, too"));
    else
      recording.errors.push_back(message(timeline.file, " is left out: it is of rank ",
                                         timeline.rank, ", as is ", first->file));
  }
  timelines = std::move(kept);
}

int world_size_of(const std::vector<RankRecording>& ranks) {
  int size = ranks.empty() ? 0 : ranks.back().timeline.rank + 1;
  const auto at_least = [&](int stated) {
    if (stated <= max_world_size) size = std::max(size, stated);
  };
  for (const RankRecording& rank : ranks) {
    at_least(rank.timeline.world_size);
    for (const ProcessGroup& group : rank.timeline.groups) {
      at_least(group.size);
      for (const int member : group.ranks) at_least(member < max_world_size ? member + 1 : 0);
    }
  }
  return size;
}

std::vector<int> missing_of(const Recording& recording) {
  std::vector<int> missing;
  if (recording.world_size > max_world_size) return missing;
  auto next = recording.ranks.begin();
  for (int rank = 0; rank < recording.world_size; ++rank)
    if (next != recording.ranks.end() && next->timeline.rank == rank)
      ++next;
    else
      missing.push_back(rank);
  return missing;
}

void report(Recording& recording) {
  std::set<std::string> cut_files;  // of several ranks each is reported once
  for (const RankRecording& rank : recording.ranks) {
    const Recorded& timeline = rank.timeline;
    if (!timeline.cut.empty() && cut_files.insert(timeline.file).second)
      recording.errors.push_back(message(timeline.file, " breaks off: ", timeline.cut,
                                         "; what is before that is analysed"));
    for (const std::string& fault : timeline.faults)
      recording.errors.push_back(message(timeline.file, ": ", fault, "; the rest is analysed"));
    if (timeline.events.empty())
      recording.warnings.push_back(
          message("rank ", timeline.rank, " has no GPU work (", timeline.file, ")"));
    if (timeline.world_size > 0 && timeline.rank >= timeline.world_size)
      recording.warnings.push_back(message("there is a rank ", timeline.rank, ", but ",
                                           timeline.file, " says that the world has ",
                                           timeline.world_size, ": one of the two is wrong"));
  }
  for (auto& sentences : {different_jobs(recording), different_units(recording.ranks)})
    std::ranges::copy(sentences, std::back_inserter(recording.warnings));
  if (!recording.missing_ranks.empty())
    recording.warnings.push_back(
        message(recording.missing_ranks.size(), " of ", recording.world_size,
                " ranks have no recording: ", list_of(recording.missing_ranks)));
}

}  // namespace

Recording make_recording(std::vector<Recorded> timelines, CommRule rule,
                         const std::vector<std::string>& patterns,
                         std::vector<std::string> errors) {
  Recording recording;
  recording.errors = std::move(errors);
  for (Recorded& timeline : timelines)
    if (timeline.rank >= max_world_size) timeline.rank = -1;
  join_resumed(timelines);
  number_nodes(timelines, recording);
  number_ranks(timelines, recording);
  leave_out_duplicates(timelines, recording);
  std::ranges::sort(timelines, {}, &Recorded::rank);
  for (Recorded& timeline : timelines) {
    if (rule == CommRule::automatic) correct_impossible_times(timeline);
    std::vector<WorkClass> classes = classify(timeline, rule, patterns);
    recording.ranks.push_back({std::move(timeline), std::move(classes)});
  }
  recording.world_size = world_size_of(recording.ranks);
  recording.missing_ranks = missing_of(recording);
  report(recording);
  return recording;
}

}  // namespace shardmark::bench
