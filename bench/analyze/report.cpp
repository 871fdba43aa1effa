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

RankReport report_of(const RankRecording& rank, const RankWindow& window,
                     const std::vector<RankWindow>& steps, std::size_t limit) {
  const Timeline& timeline = rank.timeline;
  RankReport report;
  report.rank = timeline.rank;
  report.file = timeline.file;
  report.format = timeline.format;
  report.device_name = timeline.device_name;
  report.num_events_read = timeline.num_events_read;
  if (!timeline.events.empty()) report.total = account_in(rank, window);
  for (const RankWindow& step : steps)
    if (auto figures = account_in(rank, step)) report.steps.push_back(std::move(*figures));
  if (!report.total) return report;
  const Window no_further_cut{window.name, std::nullopt};
  report.kernels = window.spans ? top_kernels(cut_to(rank, window), no_further_cut, all_of_them)
                                : top_kernels(rank, no_further_cut, all_of_them);
  add_gaps(report, rank, window, limit);
  return report;
}

void add_rank_warnings(Report& report, const RankRecording& rank, const RankReport& figures) {
  const std::string who = message("rank ", figures.rank, ": ");
  for (const std::string& warning : rank.timeline.warnings)
    report.warnings.push_back(who + warning);
  for (const std::string& flag : event_flags(rank.timeline)) report.warnings.push_back(who + flag);
  if (!rank.timeline.events.empty() && !figures.total)
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

bool Report::has_complete_collectives() const {
  return across && std::ranges::any_of(across->collectives, &MatchedCollective::complete);
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
  const ChosenWindows windows = choose_windows(recording, options);
  report.window = windows.name;
  report.across = analyse_across(recording, windows.spans());
  const ClockAlignment clocks = report.across ? report.across->clocks : own_clocks(recording);
  const std::int64_t begin_ns = begin_of(recording, clocks.offset_ns);
  std::set<std::string> suspicious;
  for (std::size_t i = 0; i < recording.ranks.size(); ++i) {
    const RankRecording& rank = recording.ranks[i];
    report.ranks.push_back(
        report_of(rank, windows.all[i], windows.steps[i], static_cast<std::size_t>(options.top)));
    report.ranks.back().begin_ns = begin_ns - clocks.offset_ns[i];
    add_rank_warnings(report, rank, report.ranks.back());
    for (std::string& name : suspicious_kernels(rank.timeline, rank.classes))
      suspicious.insert(std::move(name));
  }
  report.suspicious_kernels.assign(suspicious.begin(), suspicious.end());
  report.collectives = collective_rows(recording, windows.spans(), options.axis_of);
  report.stages = analyse_stages(recording, windows.spans(), options.axis_of, clocks);
  if (report.across)
    std::ranges::copy(report.across->warnings, std::back_inserter(report.warnings));
  std::ranges::copy(report.stages.warnings, std::back_inserter(report.warnings));
  report.mfu = mfu_of(recording, options);
  report.verdict = judge(report);
  return report;
}

}  // namespace shardmark::bench::analyze
