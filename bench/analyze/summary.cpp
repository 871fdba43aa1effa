#include "bench/analyze/summary.hpp"

#include "bench/harness/build_info.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <set>

namespace shardmark::bench::analyze {
namespace {

constexpr const char* conventions =
    "# span: from first start to last end of device work, or the chosen window; of a step its\n"
    "#   annotation on the host. span = compute + exposed + copies + idle, percentages are of it.\n"
    "# compute: kernels that do not communicate. exposed: communication while no compute runs,\n"
    "#   waiting for other ranks included. copies: copies and sets while neither runs. idle: "
    "nothing.\n"
    "# overlapped: communication while compute runs; overlap% is of all communication (none: there "
    "is none).\n";

/// "0-3,6".
std::string ranges_of(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t first = 0; first < numbers.size();) {
    std::size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[first]);
    if (last > first) text += fmt::format("-{}", numbers[last]);
    first = last + 1;
  }
  return text;
}

/// "Kineto" or "Kineto, shardmark".
std::string distinct(const Report& report, std::string RankReport::*member) {
  std::set<std::string> values;
  for (const RankReport& rank : report.ranks)
    if (!(rank.*member).empty()) values.insert(rank.*member);
  return fmt::format("{}", fmt::join(values, ", "));
}

std::string words_for(const std::string& window) {
  return window == "trace" ? "whole trace" : window;
}

void print_head(std::ostream& out, const Report& report) {
  std::vector<int> numbers;
  std::set<std::string> files;
  std::int64_t num_events = 0;
  for (const RankReport& rank : report.ranks) {
    numbers.push_back(rank.rank);
    files.insert(rank.file);
    num_events += rank.num_events_read;
  }
  out << fmt::format("# {}: {} file{} ({}), {} event{}, rank{} {} of {}\n", version_text(),
                     files.size(), files.size() == 1 ? "" : "s",
                     distinct(report, &RankReport::format), num_events, num_events == 1 ? "" : "s",
                     numbers.size() == 1 ? "" : "s", ranges_of(numbers), report.world_size);
  if (!report.missing_ranks.empty())
    out << fmt::format("# without a file, so not counted: rank{} {}\n",
                       report.missing_ranks.size() == 1 ? "" : "s",
                       ranges_of(report.missing_ranks));
  const std::string devices = distinct(report, &RankReport::device_name);
  if (!devices.empty()) out << "# device: " << devices << '\n';
  out << fmt::format("# window: {}; communication by rule {}{}\n", words_for(report.window),
                     name_of(report.options.rule),
                     report.options.comm_patterns.empty()
                         ? ""
                         : fmt::format(" and {}", fmt::join(report.options.comm_patterns, ", ")))
      << conventions;
}

constexpr const char* split_header =
    "{:>12} {:>12} {:>6} {:>12} {:>6} {:>10} {:>6} {:>12} {:>6} {:>14} {:>8}\n";

void print_split_header(std::ostream& out, std::string_view first, const TimeUnit& unit) {
  out << fmt::format("{:<22}", first)
      << fmt::format(split_header, unit.heading("span"), unit.heading("compute"), "%",
                     unit.heading("exposed"), "%", unit.heading("copies"), "%",
                     unit.heading("idle"), "%", unit.heading("overlapped"), "overlap%");
}

std::string of_span(const Account& account, std::int64_t part_ns) {
  return fmt::format("{:.1f}", percent_of(part_ns, account.span_ns));
}

void print_split(std::ostream& out, const std::string& first, const Account& account,
                 const TimeUnit& unit) {
  const std::string overlap =
      account.comm_ns > 0
          ? fmt::format("{:.1f}", percent_of(account.overlapped_ns, account.comm_ns))
          : "none";
  out << fmt::format("{:<22}", shortened(first, 22))
      << fmt::format(split_header, unit.text(account.span_ns), unit.text(account.compute_ns),
                     of_span(account, account.compute_ns), unit.text(account.exposed_comm_ns),
                     of_span(account, account.exposed_comm_ns), unit.text(account.exposed_copy_ns),
                     of_span(account, account.exposed_copy_ns), unit.text(account.idle_ns),
                     of_span(account, account.idle_ns), unit.text(account.overlapped_ns), overlap);
}

void print_ranks(std::ostream& out, const Report& report) {
  out << fmt::format("\nWhere the time goes ({})\n", words_for(report.window));
  const TimeUnit unit = report.time_unit();
  print_split_header(out, "rank", unit);
  for (const RankReport& rank : report.ranks) {
    if (!rank.total) {
      out << fmt::format("{:<22} no device work\n", rank.rank);
      continue;
    }
    print_split(out, fmt::format("{}", rank.rank), *rank.total, unit);
    const PeerCopies& copies = rank.peer_copies;
    if (copies.count > 0)
      out << fmt::format(
          "{:<22} of the copies {} are between devices: {} {}, {} of it not under compute\n", "",
          copies.count, unit.text(copies.total_ns), unit.name, unit.text(copies.exposed_ns));
  }
}

void print_steps(std::ostream& out, const Report& report) {
  struct Slowest {
    int rank;
    const Account* account;
  };
  std::map<std::string, Slowest> slowest;
  std::vector<std::string> order;
  for (const RankReport& rank : report.ranks) {
    if (!rank.total) continue;
    for (const Account& step : rank.steps) {
      const auto [place, is_new] = slowest.try_emplace(step.window.name, Slowest{rank.rank, &step});
      if (is_new) order.push_back(step.window.name);
      if (step.span_ns > place->second.account->span_ns) place->second = {rank.rank, &step};
    }
  }
  if (order.empty()) return;
  out << (report.ranks.size() > 1 ? "\nSteps, of each its slowest rank\n" : "\nSteps\n");
  const TimeUnit unit = report.time_unit();
  print_split_header(out, report.ranks.size() > 1 ? "step (rank)" : "step", unit);
  constexpr std::size_t num_shown = 20;
  for (std::size_t i = 0; i < std::min(num_shown, order.size()); ++i) {
    const Slowest& step = slowest.at(order[i]);
    const auto number = step_number(order[i]);
    std::string name = number ? fmt::format("{}", *number) : order[i];
    if (report.ranks.size() > 1) name += fmt::format(" ({})", step.rank);
    print_split(out, name, *step.account, unit);
  }
  if (order.size() > num_shown)
    out << fmt::format("... and {} more: --out DIR or --csv FILE has all\n",
                       order.size() - num_shown);
}

void print_matched(std::ostream& out, const Report& report) {
  const AcrossRanks& across = *report.across;
  out << "# wait: duration of those on all members beyond the shortest of them, whose rank came "
         "last; transfer: the shortest.\n";
  constexpr const char* format = "{:<22} {:>12} {:>12} {:>10} {:>20} {:>12} {:>18}\n";
  const TimeUnit unit = report.time_unit();
  out << fmt::format(format, "rank", unit.heading("wait"), unit.heading("transfer"), "last",
                     unit.heading("others waited"), unit.heading("compute"), "clock within(us)");
  for (std::size_t i = 0; i < across.ranks.size(); ++i) {
    const RankAcross& rank = across.ranks[i];
    out << fmt::format(
        format, report.ranks[i].rank, unit.text(rank.wait_ns), unit.text(rank.transfer_ns),
        rank.num_last, unit.text(rank.caused_wait_ns), unit.text(rank.compute_ns),
        across.clocks.knows(i)
            ? fmt::format("{:.3f}", static_cast<double>(across.clocks.bound_ns[i]) / 1e3)
            : "unknown");
  }
}

void print_imbalance(std::ostream& out, const ComparedCompute& compared) {
  const auto [fastest, slowest] = std::ranges::minmax_element(compared.compute_us);
  const auto number_of = [&](const auto& place) {
    return compared.numbers[static_cast<std::size_t>(place - compared.compute_us.begin())];
  };
  if (*slowest == *fastest) return;
  out << fmt::format("imbalance: rank {} computes {:.3f}x as long as rank {}{}\n",
                     number_of(slowest), compared.ratio(), number_of(fastest),
                     compared.num_steps == 0 ? "" : " in the steps that all ranks have");
}

/// In how many steps each rank was the critical one; of the window if there are no steps.
void print_critical(std::ostream& out, const Report& report) {
  const AcrossRanks& across = *report.across;
  const auto number_of = [&](int place) {
    return report.ranks[static_cast<std::size_t>(place)].rank;
  };
  if (across.steps.empty()) {
    if (across.critical_rank >= 0)
      out << fmt::format("critical: rank {}\n", number_of(across.critical_rank));
    return;
  }
  std::map<int, int> num_steps;
  for (const StepAcross& step : across.steps)
    if (step.critical_rank >= 0) ++num_steps[number_of(step.critical_rank)];
  for (const auto& [rank, num] : num_steps)
    out << fmt::format("critical: rank {} in {} of {} step{}\n", rank, num, across.steps.size(),
                       across.steps.size() == 1 ? "" : "s");
}

void print_across(std::ostream& out, const Report& report) {
  if (!report.across) return;
  const AcrossRanks& across = *report.across;
  out << fmt::format(
      "\nRanks against each other: {} collective{} matched, {} of them on all members\n",
      across.collectives.size(), across.collectives.size() == 1 ? "" : "s",
      std::ranges::count_if(across.collectives, &MatchedCollective::complete));
  if (report.has_complete_collectives()) print_matched(out, report);
  if (report.compared.ratio() > 0) print_imbalance(out, report.compared);
  print_critical(out, report);
}

void print_stages(std::ostream& out, const Report& report) {
  if (report.stages.rows.empty()) return;
  out << "\nPipeline stages, in the window from the first to the last work of any of them\n"
         "# bubble: neither compute nor collectives nor copies; messages with their transfer count "
         "to it.\n";
  constexpr const char* format =
      "{:<9} {:>5} {:>6} {:>12} {:>12} {:>15} {:>12} {:>6} {:>14} {:>10} {:>10}\n";
  const TimeUnit unit = report.time_unit();
  out << fmt::format(format, "pipeline", "stage", "rank", unit.heading("window"),
                     unit.heading("compute"), unit.heading("collectives"), unit.heading("bubble"),
                     "%", unit.heading("messages"), unit.heading("start"), unit.heading("drain"));
  for (const StageRow& stage : report.stages.rows)
    out << fmt::format(format, stage.pipeline, stage.stage,
                       report.ranks[static_cast<std::size_t>(stage.rank)].rank,
                       unit.text(stage.window_ns), unit.text(stage.compute_ns),
                       unit.text(stage.collective_ns), unit.text(stage.bubble_ns),
                       fmt::format("{:.1f}", 100 * stage.bubble_of_total), unit.text(stage.wait_ns),
                       unit.text(stage.fill_ns), unit.text(stage.drain_ns));
}

void print_mfu(std::ostream& out, const Report& report) {
  if (!report.mfu) return;
  const Mfu& mfu = *report.mfu;
  out << fmt::format(
      "\nModel FLOPs: {:.4g} per step (causal; full attention {:.4g}), step {:.3f} "
      "ms, {} device{}: {:.4g} TFLOP/s each\n",
      mfu.flops_causal, mfu.flops_full, mfu.step_us / 1e3, mfu.num_devices,
      mfu.num_devices == 1 ? "" : "s", mfu.tflops_per_device);
  out << fmt::format("MFU {:.1f} % causal, {:.1f} % full, of {:g} TFLOP/s ({})\n",
                     mfu.mfu_causal_pct, mfu.mfu_full_pct, mfu.peak_tflops, mfu.peak_source);
  if (mfu.tokens_per_s > 0) out << fmt::format("{:.0f} tokens/s\n", mfu.tokens_per_s);
  if (!mfu.note.empty()) out << "note: " << mfu.note << '\n';
  if (mfu.mfu_causal_pct > 100)
    out << "note: more than the peak cannot be; check --flops or --model and --tokens (of all "
           "ranks "
           "together), --num-devices and --peak-tflops\n";
}

void print_warnings(std::ostream& out, const Report& report) {
  if (!report.suspicious_kernels.empty())
    out << fmt::format(
        "\nCounted as compute, but named like communication; --comm-pattern adds them\n");
  for (const std::string& name : report.suspicious_kernels)
    out << "  " << shortened(name, 96) << '\n';
  if (report.warnings.empty()) return;
  out << "\nWarnings\n";
  for (const std::string& warning : report.warnings) out << "  " << warning << '\n';
}

}  // namespace

std::string shortened(std::string_view text, std::size_t width) {
  std::string clean;
  for (const char c : text) clean += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  if (clean.size() <= width) return clean;
  const std::size_t back = (width - 3) / 3;
  return clean.substr(0, width - 3 - back) + "..." + clean.substr(clean.size() - back);
}

void print_summary(std::ostream& out, const Report& report) {
  print_head(out, report);
  print_ranks(out, report);
  print_steps(out, report);
  print_collectives(out, report);
  print_across(out, report);
  print_stages(out, report);
  print_kernels(out, report);
  print_gaps(out, report);
  print_mfu(out, report);
  print_warnings(out, report);
  out << "\nverdict: " << report.verdict.name << "\n  " << report.verdict.reason << std::endl;
}

}  // namespace shardmark::bench::analyze
