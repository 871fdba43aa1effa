#include "bench/analyze/report.hpp"

#include "bench/analyze/verdict.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>

namespace shardmark::bench::analyze {
namespace {

constexpr std::size_t all_of_them = std::numeric_limits<std::size_t>::max();

/// The window's spans as windows of the functions that take one each.
std::vector<Window> parts_of(const RankWindow& window) {
  if (!window.spans) return {{window.name, std::nullopt}};
  std::vector<Window> parts;
  for (const Span& span : *window.spans) parts.push_back({window.name, span});
  return parts;
}

void add_gaps(RankReport& report, const RankRecording& rank, const RankWindow& window,
              std::size_t limit) {
  for (const Window& part : parts_of(window)) {
    std::ranges::move(longest_gaps(rank, part, limit), std::back_inserter(report.gaps));
    const IdleSplit idle = split_idle(rank, part);
    report.idle.host_bound_ns += idle.host_bound_ns;
    report.idle.waiting_ns += idle.waiting_ns;
    report.idle.unknown_ns += idle.unknown_ns;
    const PeerCopies copies = peer_copies(rank, part);
    report.peer_copies.count += copies.count;
    report.peer_copies.total_ns += copies.total_ns;
    report.peer_copies.exposed_ns += copies.exposed_ns;
  }
  std::ranges::sort(report.gaps, std::ranges::greater{},
                    [](const Gap& gap) { return gap.time.end_ns - gap.time.start_ns; });
  if (report.gaps.size() > limit) report.gaps.resize(limit);
}

RankReport report_of(const RankRecording& rank, const RankRecording& cut, const RankWindow& window,
                     const std::vector<RankWindow>& steps, std::size_t limit) {
  const Timeline& timeline = rank.timeline;
  RankReport report;
  report.rank = timeline.rank;
  report.file = timeline.file;
  report.format = timeline.format;
  report.device_name = timeline.device_name;
  report.num_events_read = timeline.num_events_read;
  if (timeline.events.empty()) return report;
  report.total = account_in(rank, window);
  for (const RankWindow& step : steps)
    if (auto figures = account_in(rank, step)) report.steps.push_back(std::move(*figures));
  if (!report.total) return report;
  report.kernels = top_kernels(cut, {window.name, std::nullopt}, all_of_them);
  add_gaps(report, rank, window, limit);
  return report;
}

void add_rank_warnings(Report& report, const RankRecording& rank, const RankReport& figures) {
  const std::string who = message("rank ", figures.rank, ": ");
  for (const std::string& warning : rank.timeline.warnings)
    report.warnings.push_back(who + warning);
  for (const std::string& flag : event_flags(rank.timeline)) report.warnings.push_back(who + flag);
  if (rank.timeline.events.empty())
    report.warnings.push_back(who +
                              "no kernels, copies or sets in the file: nothing of it is counted "
                              "(was the profiler started with CUDA activities?)");
  else if (!figures.total)
    report.warnings.push_back(message(who, "nothing in ", report.window));
  if (figures.total && figures.total->residual_ns != 0)
    report.warnings.push_back(message(who, "the parts of the window miss it by ",
                                      figures.total->residual_ns, " ns: do not trust them"));
}

std::optional<Mfu> mfu_of(const Recording& recording, const Options& options) {
  std::optional<Mfu> mfu = model_flops_utilization(recording, options.work);
  if (!mfu || options.num_devices == 0) return mfu;
  const double ratio = static_cast<double>(mfu->num_devices) / options.num_devices;
  mfu->num_devices = options.num_devices;
  mfu->tflops_per_device *= ratio;
  mfu->mfu_causal_pct *= ratio;
  mfu->mfu_full_pct *= ratio;
  return mfu;
}

/// First start of device work of any rank, on the first rank's clock.
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

}  // namespace

std::optional<std::size_t> Report::most_exposed() const {
  std::optional<std::size_t> most;
  const auto share = [this](std::size_t i) {
    return percent_of(ranks[i].total->exposed_comm_ns, ranks[i].total->span_ns);
  };
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (ranks[i].total && (!most || share(i) > share(*most))) most = i;
  return most;
}

AcrossRanks across_in(const AcrossRanks& across, const std::vector<RankWindow>& all,
                      const std::vector<RankReport>& ranks) {
  AcrossRanks cut = across;
  std::erase_if(cut.collectives, [&](const MatchedCollective& collective) {
    // Its arrivals are on the first rank's clock, windows on each rank's own.
    const auto first = static_cast<std::size_t>(collective.ranks.front());
    const std::int64_t start_ns = collective.arrival_ns.front() - across.clocks.offset_ns[first];
    DeviceEvent event;
    event.time = {start_ns, start_ns + std::max<std::int64_t>(collective.duration_ns.front(), 1)};
    return !lies_in(event, all[first]);
  });
  for (std::size_t i = 0; i < cut.ranks.size(); ++i)
    cut.ranks[i] = {0, 0, 0, ranks[i].total ? ranks[i].total->compute_ns : 0};
  for (const MatchedCollective& collective : cut.collectives) {
    if (!collective.complete) continue;
    for (std::size_t i = 0; i < collective.ranks.size(); ++i) {
      RankAcross& rank = cut.ranks[static_cast<std::size_t>(collective.ranks[i])];
      rank.transfer_ns += collective.transfer_ns;
      rank.wait_ns += collective.duration_ns[i] - collective.transfer_ns;
    }
    if (collective.last_arriver >= 0)
      ++cut.ranks[static_cast<std::size_t>(collective.last_arriver)].num_last;
  }
  const auto [fastest, slowest] = std::ranges::minmax(cut.ranks, {}, &RankAcross::compute_ns);
  cut.imbalance = fastest.compute_ns > 0 ? static_cast<double>(slowest.compute_ns) /
                                               static_cast<double>(fastest.compute_ns)
                                         : 0;
  return cut;
}

double percent_of(std::int64_t part_ns, std::int64_t whole_ns) {
  return whole_ns == 0 ? 0 : 100 * static_cast<double>(part_ns) / static_cast<double>(whole_ns);
}

Report make_report(const Recording& recording, const Options& options) {
  Report report;
  report.options = options;
  report.world_size = recording.world_size;
  report.missing_ranks = recording.missing_ranks;
  report.warnings = recording.warnings;
  report.errors = recording.errors;
  report.across = analyse_across(recording, {"trace", std::nullopt});
  const std::vector<std::int64_t> offset_ns =
      report.across ? report.across->clocks.offset_ns
                    : std::vector<std::int64_t>(recording.ranks.size(), 0);
  const ChosenWindows windows = choose_windows(recording, options, offset_ns);
  report.window = windows.name;
  std::optional<Recording> shorter;
  if (options.cuts()) shorter = cut_to(recording, windows.all);
  const Recording& cut = shorter ? *shorter : recording;
  const std::int64_t begin_ns = begin_of(recording, offset_ns);
  std::set<std::string> suspicious;
  for (std::size_t i = 0; i < recording.ranks.size(); ++i) {
    const RankRecording& rank = recording.ranks[i];
    report.ranks.push_back(report_of(rank, cut.ranks[i], windows.all[i], windows.steps[i],
                                     static_cast<std::size_t>(options.top)));
    report.ranks.back().begin_ns = begin_ns - offset_ns[i];
    add_rank_warnings(report, rank, report.ranks.back());
    for (std::string& name : suspicious_kernels(rank.timeline, rank.classes))
      suspicious.insert(std::move(name));
  }
  report.suspicious_kernels.assign(suspicious.begin(), suspicious.end());
  report.collectives = collective_rows(cut, {windows.name, std::nullopt}, options.axis_of);
  if (report.across) {
    std::ranges::copy(report.across->warnings, std::back_inserter(report.warnings));
    if (options.cuts()) report.across = across_in(*report.across, windows.all, report.ranks);
  }
  report.mfu = mfu_of(recording, options);
  report.verdict = judge(report);
  return report;
}

}  // namespace shardmark::bench::analyze
