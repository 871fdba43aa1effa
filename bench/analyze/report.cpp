#include "bench/analyze/report.hpp"

#include "bench/analyze/compared.hpp"
#include "bench/analyze/unmatched.hpp"
#include "bench/analyze/verdict.hpp"
#include "core/error.hpp"
#include "profiler/impossible_times.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>

namespace shardmark::bench::analyze {
namespace {

constexpr std::size_t all_of_them = std::numeric_limits<std::size_t>::max();

/// Files get as many gaps as this, however few are printed.
constexpr int least_gaps = 100;

RankReport report_of(const RankRecording& rank, const RankWindow& window,
                     const std::vector<RankWindow>& steps, std::size_t limit) {
  const Timeline& timeline = rank.timeline;
  RankReport report;
  report.rank = timeline.rank;
  report.file = timeline.file;
  report.format = timeline.format;
  report.device_name = timeline.device_name;
  report.num_events_read = timeline.num_events_read;
  const Accounting accounting{timeline, rank.classes};
  if (!timeline.events.empty()) report.total = account_in(accounting, rank, window);
  for (const RankWindow& step : steps)
    if (auto figures = account_in(accounting, rank, step))
      report.steps.push_back(std::move(*figures));
  if (!report.total) return report;
  report.kernels = top_kernels(rank, window.spans, all_of_them);
  report.gaps = longest_gaps(rank, window.spans, limit);
  report.idle = split_idle(rank, window.spans);
  report.peer_copies = peer_copies(rank, window.spans);
  return report;
}

void add_rank_warnings(Report& report, const RankRecording& rank, const RankReport& figures) {
  const std::string who = message("rank ", figures.rank, ": ");
  for (const std::string& warning : rank.timeline.warnings)
    report.warnings.push_back(who + warning);
  for (const std::string& flag : impossible_times(rank.timeline))
    report.warnings.push_back(who + flag);
  if (!rank.timeline.events.empty() && !figures.total)
    report.warnings.push_back(message(who, "nothing in ", report.window));
  if (figures.total && figures.total->residual_ns != 0)
    report.warnings.push_back(message(who, "the parts of the window miss it by ",
                                      figures.total->residual_ns, " ns: do not trust them"));
}

std::optional<Mfu> mfu_of(const Recording& recording, const Options& options,
                          const ChosenWindows& windows) {
  std::optional<Mfu> mfu = model_flops_utilization(recording, options.work, windows);
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

TimeUnit Report::time_unit() const {
  std::int64_t longest_ns = 0;
  for (const RankReport& rank : ranks)
    if (rank.total) longest_ns = std::max(longest_ns, rank.total->span_ns);
  for (const StageRow& stage : stages.rows) longest_ns = std::max(longest_ns, stage.window_ns);
  return unit_for(longest_ns);
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
    report.ranks.push_back(report_of(rank, windows.all[i], windows.steps[i],
                                     static_cast<std::size_t>(std::max(options.top, least_gaps))));
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
  std::ranges::move(unmatched_options(recording, options), std::back_inserter(report.warnings));
  std::ranges::copy(windows.warnings, std::back_inserter(report.warnings));
  report.compared = compare_compute(report.ranks);
  report.mfu = mfu_of(recording, options, windows);
  report.verdict = judge(report);
  for (const RankRecording& rank : recording.ranks)
    if (!rank.timeline.no_classes.empty())
      report.verdict = {"none",
                        message("rank ", rank.timeline.rank, ": ", rank.timeline.no_classes)};
  return report;
}

}  // namespace shardmark::bench::analyze
