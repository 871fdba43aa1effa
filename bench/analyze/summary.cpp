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

void print_split_header(std::ostream& out, std::string_view first) {
  out << fmt::format("{:<22}", first)
      << fmt::format(split_header, "span(ms)", "compute(ms)", "%", "exposed(ms)", "%", "copies(ms)",
                     "%", "idle(ms)", "%", "overlapped(ms)", "overlap%");
}

std::string of_span(const Account& account, std::int64_t part_ns) {
  return fmt::format("{:.1f}", percent_of(part_ns, account.span_ns));
}

void print_split(std::ostream& out, const std::string& first, const Account& account) {
  const std::string overlap =
      account.comm_ns > 0
          ? fmt::format("{:.1f}", percent_of(account.overlapped_ns, account.comm_ns))
          : "none";
  out << fmt::format("{:<22}", shortened(first, 22))
      << fmt::format(split_header, ms(account.span_ns), ms(account.compute_ns),
                     of_span(account, account.compute_ns), ms(account.exposed_comm_ns),
                     of_span(account, account.exposed_comm_ns), ms(account.exposed_copy_ns),
                     of_span(account, account.exposed_copy_ns), ms(account.idle_ns),
                     of_span(account, account.idle_ns), ms(account.overlapped_ns), overlap);
}

void print_ranks(std::ostream& out, const Report& report) {
  out << fmt::format("\nWhere the time goes ({})\n", words_for(report.window));
  print_split_header(out, "rank");
  for (const RankReport& rank : report.ranks) {
    if (!rank.total) {
      out << fmt::format("{:<22} no device work\n", rank.rank);
      continue;
    }
    print_split(out, fmt::format("{}", rank.rank), *rank.total);
    const PeerCopies& copies = rank.peer_copies;
    if (copies.count > 0)
      out << fmt::format(
          "{:<22} of the copies {} are between devices: {} ms, {} ms of it not under compute\n", "",
          copies.count, ms(copies.total_ns), ms(copies.exposed_ns));
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
  print_split_header(out, report.ranks.size() > 1 ? "step (rank)" : "step");
  constexpr std::size_t num_shown = 20;
  for (std::size_t i = 0; i < std::min(num_shown, order.size()); ++i) {
    const Slowest& step = slowest.at(order[i]);
    const auto number = step_number(order[i]);
    std::string name = number ? fmt::format("{}", *number) : order[i];
    if (report.ranks.size() > 1) name += fmt::format(" ({})", step.rank);
    print_split(out, name, *step.account);
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
  out << fmt::format(format, "rank", "wait(ms)", "transfer(ms)", "last", "others waited(ms)",
                     "compute(ms)", "clock within(us)");
  for (std::size_t i = 0; i < across.ranks.size(); ++i) {
    const RankAcross& rank = across.ranks[i];
    out << fmt::format(
        format, report.ranks[i].rank, ms(rank.wait_ns), ms(rank.transfer_ns), rank.num_last,
        ms(rank.caused_wait_ns), ms(rank.compute_ns),
        across.clocks.knows(i)
            ? fmt::format("{:.3f}", static_cast<double>(across.clocks.bound_ns[i]) / 1e3)
            : "unknown");
  }
}

void print_across(std::ostream& out, const Report& report) {
  if (!report.across) return;
  const AcrossRanks& across = *report.across;
  out << fmt::format(
      "\nRanks against each other: {} collective{} matched, {} of them on all members\n",
      across.collectives.size(), across.collectives.size() == 1 ? "" : "s",
      std::ranges::count_if(across.collectives, &MatchedCollective::complete));
  if (report.has_complete_collectives()) print_matched(out, report);
  if (across.imbalance > 0)
    out << fmt::format("imbalance: the slowest rank computes {:.3f}x as long as the fastest\n",
                       across.imbalance);
  std::map<int, int> critical;
  for (const int place : across.critical_rank)
    if (place >= 0) ++critical[report.ranks[static_cast<std::size_t>(place)].rank];
  for (const auto& [rank, count] : critical)
    out << fmt::format("critical: rank {} in {} of {} {}{}\n", rank, count,
                       across.critical_rank.size(),
                       report.ranks.front().steps.empty() ? "window" : "step",
                       across.critical_rank.size() == 1 ? "" : "s");
}

void print_stages(std::ostream& out, const Report& report) {
  if (report.stages.rows.empty()) return;
  out << "\nPipeline stages, in the window from the first to the last work of any of them\n"
         "# bubble: neither compute nor collectives nor copies; messages with their transfer count "
         "to it.\n";
  constexpr const char* format =
      "{:<9} {:>5} {:>6} {:>12} {:>12} {:>15} {:>12} {:>6} {:>14} {:>10} {:>10}\n";
  out << fmt::format(format, "pipeline", "stage", "rank", "window(ms)", "compute(ms)",
                     "collectives(ms)", "bubble(ms)", "%", "messages(ms)", "start(ms)",
                     "drain(ms)");
  for (const StageRow& stage : report.stages.rows)
    out << fmt::format(format, stage.pipeline, stage.stage,
                       report.ranks[static_cast<std::size_t>(stage.rank)].rank, ms(stage.window_ns),
                       ms(stage.compute_ns), ms(stage.collective_ns), ms(stage.bubble_ns),
                       fmt::format("{:.1f}", 100 * stage.bubble_of_total), ms(stage.wait_ns),
                       ms(stage.fill_ns), ms(stage.drain_ns));
}

void print_mfu(std::ostream& out, const Report& report) {
  if (!report.mfu) return;
  const Mfu& mfu = *report.mfu;
  out << fmt::format(
      "\nModel FLOPs: {:.4g} per step (causal; full attention {:.4g}), step {:.3f} "
      "ms, {} device{}: {:.1f} TFLOP/s each\n",
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

std::string ms(std::int64_t ns) { return fmt::format("{:.3f}", static_cast<double>(ns) / 1e6); }

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
