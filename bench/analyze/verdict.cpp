#include "bench/analyze/verdict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace shardmark::bench::analyze {
namespace {

/// The collective with the most exposed time on that rank; null if the rank has none.
const CollectiveRow* largest_exposed(const Report& report, int rank) {
  const CollectiveRow* largest = nullptr;
  for (const CollectiveRow& row : report.collectives)
    if (row.rank == rank && (largest == nullptr || row.exposed_us > largest->exposed_us))
      largest = &row;
  return largest;
}

std::string_view remedy_for(const std::string& purpose) {
  if (purpose == "tp") return "try lower tp with more dp, or overlap it with the matmuls";
  if (purpose == "dp")
    return "try to overlap it with backward in smaller buckets, or fewer of them by accumulating "
           "gradients";
  if (purpose == "ep") return "try to overlap dispatch and combine with the experts' compute";
  if (purpose == "cp") return "try to overlap the exchange with attention, or a smaller cp";
  if (purpose == "pp") return "try more micro-batches, or a schedule with a smaller bubble";
  return "try to overlap it with compute, or fewer and larger calls";
}

/// Where most of a rank's time in matched collectives is waiting: for whom. Else empty.
std::string waiting_of(const Report& report, const RankReport& rank) {
  if (!report.across) return {};
  const std::vector<RankAcross>& ranks = report.across->ranks;
  const RankAcross& mine = ranks.at(static_cast<std::size_t>(&rank - report.ranks.data()));
  if (mine.wait_ns <= mine.transfer_ns) return {};
  const auto last = std::ranges::max_element(ranks, {}, &RankAcross::caused_wait_ns);
  return fmt::format(
      "{:.0f} % of its time in matched collectives is waiting, ranks wait longest "
      "for rank {}; look at what that one does before",
      percent_of(mine.wait_ns, mine.wait_ns + mine.transfer_ns),
      report.ranks[static_cast<std::size_t>(last - ranks.begin())].rank);
}

std::string communication_advice(const Report& report, const RankReport& rank) {
  const CollectiveRow* const row = largest_exposed(report, rank.rank);
  const std::int64_t total_ns = rank.total->exposed_comm_ns;
  const TimeUnit unit = unit_for(total_ns);
  std::string advice;
  if (row != nullptr && row->exposed_us > 0)
    advice =
        fmt::format("most is {}{} ({} of {} {}): ", row->kind == "?" ? row->kernel : row->kind,
                    row->purpose.empty() || row->purpose == "?" ? "" : " of " + row->purpose,
                    unit.text(std::llround(row->exposed_us * 1e3)), unit.text(total_ns), unit.name);
  if (const std::string waits = waiting_of(report, rank); !waits.empty()) return advice + waits;
  return advice + std::string{remedy_for(row == nullptr ? "" : row->purpose)};
}

/// Stages that wait for messages or have nothing to do. Its cost is what equal compute times would
/// leave of it.
std::optional<Finding> bubble_bound(const Report& report, const ComparedCompute& compared) {
  const std::vector<StageRow>& stages = report.stages.rows;
  if (stages.empty()) return std::nullopt;
  double mean_pct = 0;
  for (const StageRow& stage : stages)
    mean_pct += 100 * stage.bubble_of_total / static_cast<double>(stages.size());
  const double limit_pct = report.options.thresholds.bubble_pct;
  if (mean_pct <= limit_pct) return std::nullopt;
  const StageRow& most = *std::ranges::max_element(stages, {}, &StageRow::bubble_of_total);
  return Finding{
      {"bubble_bound",
       fmt::format(
           "the bubble is {:.1f} % of the window (limit {:g} %), messages included; most at "
           "stage {} on rank {} ({:.1f} %); try more micro-batches, or a schedule with a "
           "smaller bubble",
           mean_pct, limit_pct, most.stage, report.ranks[static_cast<std::size_t>(most.rank)].rank,
           100 * most.bubble_of_total)},
      mean_pct - imbalance_pct(compared.compute_us, compared.window_us)};
}

/// Of a rank of a pipeline without its messages, whose waiting is the bubble.
double exposed_pct(const Report& report, std::size_t place) {
  for (const StageRow& stage : report.stages.rows)
    if (static_cast<std::size_t>(stage.rank) == place)
      return percent_of(stage.collective_ns, stage.window_ns);
  const Account& total = *report.ranks[place].total;
  return percent_of(total.exposed_comm_ns, total.span_ns);
}

/// Its cost leaves out what the rank waits for the one that computes longest.
std::optional<Finding> communication_bound(const Report& report, const ComparedCompute& compared) {
  const auto place = report.most_exposed();
  if (!place) return std::nullopt;
  const RankReport& rank = report.ranks[*place];
  const double share_pct = exposed_pct(report, *place);
  const auto mine = std::ranges::find(compared.numbers, rank.rank) - compared.numbers.begin();
  const double longest_us = std::ranges::max(compared.compute_us);
  const double waits_pct =
      100 * (longest_us - compared.compute_us[static_cast<std::size_t>(mine)]) / compared.window_us;
  const std::string_view which =
      report.stages.rows.empty() ? "" : "without messages between stages, ";
  return find_communication(fmt::format("{}exposed communication of rank {}", which, rank.rank),
                            share_pct, share_pct - waits_pct, communication_advice(report, rank),
                            report.options.thresholds);
}

std::string parts_of(const Account& total) {
  return fmt::format(
      "compute is {:.1f} % of the window, exposed communication {:.1f} %, exposed copies {:.1f} %, "
      "idle {:.1f} %",
      percent_of(total.compute_ns, total.span_ns), percent_of(total.exposed_comm_ns, total.span_ns),
      percent_of(total.exposed_copy_ns, total.span_ns), percent_of(total.idle_ns, total.span_ns));
}

std::string idle_advice(const IdleSplit& idle, std::int64_t idle_ns) {
  if (2 * idle.host_bound_ns > idle_ns)
    return fmt::format(
        "in {:.0f} % of the idle time the host launches too late; try larger batches, CUDA graphs, "
        "or look at what the host does in the longest gaps",
        percent_of(idle.host_bound_ns, idle_ns));
  if (2 * idle.waiting_ns > idle_ns)
    return fmt::format(
        "in {:.0f} % of the idle time launched work waits for an event, a stream or its own "
        "latency; look at the longest gaps",
        percent_of(idle.waiting_ns, idle_ns));
  return "look at what happens before and after the longest gaps";
}

/// Where nothing that has a verdict takes most of the window.
std::string why_none(const Report& report, const RankReport& rank) {
  const Account& total = *rank.total;
  const std::string parts = fmt::format("of rank {} ", rank.rank) + parts_of(total);
  if (total.idle_ns >= std::max(total.exposed_copy_ns, total.exposed_comm_ns))
    return parts + "; " + idle_advice(rank.idle, total.idle_ns);
  if (total.exposed_copy_ns >= total.exposed_comm_ns)
    return parts +
           "; try to copy less, or from pinned memory on a stream of its own while kernels run";
  return parts + "; " + communication_advice(report, rank);
}

/// Compute is most of the window, but not of the steps, which may begin before the first or end
/// after the last work: empty if it is of those, too.
std::string contradiction_of_steps(const RankReport& rank) {
  std::int64_t compute_ns = 0, idle_ns = 0, span_ns = 0;
  for (const Account& step : rank.steps) {
    compute_ns += step.compute_ns;
    idle_ns += step.idle_ns;
    span_ns += step.span_ns;
  }
  if (span_ns == 0 || 2 * compute_ns > span_ns) return {};
  return fmt::format(
      "of rank {} compute is {:.1f} % of the window, but {:.1f} % of the steps, in which the "
      "device "
      "is idle for {:.1f} %: look at what the host does there",
      rank.rank, percent_of(rank.total->compute_ns, rank.total->span_ns),
      percent_of(compute_ns, span_ns), percent_of(idle_ns, span_ns));
}

/// Where no rule holds: the rank whose window is longest stands for all.
Verdict no_rule_holds(const Report& report) {
  const RankReport* longest = nullptr;
  for (const RankReport& rank : report.ranks)
    if (rank.total && (longest == nullptr || rank.total->span_ns > longest->total->span_ns))
      longest = &rank;
  if (longest == nullptr) return {"none", "no rank has device work in the window"};
  const Account& total = *longest->total;
  if (total.span_ns == 0) return {"none", "no device work takes any time"};
  if (2 * total.compute_ns <= total.span_ns) return {"none", why_none(report, *longest)};
  if (std::string why = contradiction_of_steps(*longest); !why.empty()) return {"none", why};
  std::string reason =
      parts_of(total) + "; if memory or arithmetic limits its kernels no timeline says";
  const auto place = report.most_exposed();
  const RankReport& most = report.ranks[*place];
  const double most_pct = percent_of(most.total->exposed_comm_ns, most.total->span_ns);
  if (most_pct > report.options.thresholds.communication_warn_pct)
    reason += fmt::format(
        "; rank {}'s exposed communication ({:.1f} %) is above the warning level "
        "of {:g} %: {}",
        most.rank, most_pct, report.options.thresholds.communication_warn_pct,
        communication_advice(report, most));
  return {"compute_bound", reason};
}

}  // namespace

Verdict judge(const Report& report) {
  const ComparedCompute& compared = report.compared;
  const auto look = [](std::size_t, std::size_t) {
    return std::string{"; look at what it computes more (top kernels), or at its clocks and load"};
  };
  const std::array findings{find_imbalance({compared.compute_us, compared.numbers, look},
                                           compared.window_us, report.options.thresholds),
                            bubble_bound(report, compared), communication_bound(report, compared)};
  if (auto verdict = costliest(findings)) return *verdict;
  return no_rule_holds(report);
}

}  // namespace shardmark::bench::analyze
