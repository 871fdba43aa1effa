#include "bench/harness/dry_run.hpp"

#include "bench/harness/table.hpp"
#include "core/host.hpp"
#include "core/record/deadlock.hpp"
#include "core/record/matching.hpp"
#include "core/record/memory.hpp"
#include "core/record/races.hpp"
#include "layers/volume.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>

namespace shardmark::bench {
namespace {

std::vector<Recording> record_ranks(const Case& config, int num_threads) {
  std::vector<Recording> ranks;
  LayerConfig layer = config.layer;
  for (int rank = 0; rank < config.layer.parallel.num_ranks(); ++rank) {
    layer.parallel = config.layer.parallel.at(0, rank);
    ranks.push_back(record_program(layer, config.phase, num_threads));
  }
  return ranks;
}

/// --algorithm: the ops, bytes and scratch of the plans. All ranks are taken to be on one host.
void apply_plans(std::vector<Recording>& ranks, const PlanChoice& plans) {
  if (plans.algorithms.empty()) return;
  const std::vector<int> hosts(ranks.size(), 0);
  for (Recording& rank : ranks) {
    PlannedProgram planned = plan_program(rank.ops, plans, hosts);
    rank.ops = std::move(planned.ops);
    rank.workspace_bytes += planned.scratch_bytes;
    rank.bytes_wire = planned.bytes_sent;
  }
}

/// "12.300 GFLOP", from a thousand on in the next larger unit.
std::string format_flops(double flops) {
  constexpr std::string_view units = "GTPE";
  double value = flops / 1e9;
  std::size_t unit = 0;
  for (; value >= 1e3 && unit + 1 < units.size(); ++unit) value /= 1e3;
  return fmt::format("{:.3f} {}FLOP", value, units[unit]);
}

/// "matmul 24 (12.3 GFLOP), ..." in order of first appearance.
void print_counts(std::ostream& out, const std::vector<OpRecord>& ops) {
  struct Count {
    std::string_view name;
    int count{0};
    double flops{0}, bytes_wire{0};
  };
  std::vector<Count> counts;
  for (const OpRecord& record : ops) {
    const std::string_view name = name_of(record.op);
    auto found = std::ranges::find(counts, name, &Count::name);
    if (found == counts.end()) found = counts.insert(counts.end(), Count{name});
    ++found->count;
    found->flops += flops_of(record.op);
    found->bytes_wire += bytes_sent_of(record.op);
  }
  out << fmt::format("  operations of rank 0: {}\n", ops.size());
  for (const Count& count : counts) {
    out << fmt::format("    {:<24} {:>6}", count.name, count.count);
    if (count.flops > 0) out << fmt::format("  {:>16}", format_flops(count.flops));
    if (count.bytes_wire > 0)
      out << fmt::format("  {:>12} across the link", format_bytes(count.bytes_wire));
    out << '\n';
  }
}

void print_memory(std::ostream& out, const std::vector<Recording>& ranks) {
  out << fmt::format("  peak memory per rank: {:>12}", "total");
  for (std::size_t category = 0; category < num_categories; ++category)
    out << fmt::format(" {:>13}", name_of(static_cast<Category>(category)));
  out << fmt::format(" {:>13}\n", "scratch");
  double all_bytes = 0;
  std::string previous;
  std::size_t equal_since = 0;
  const auto flush = [&](std::size_t next) {
    if (previous.empty()) return;
    const std::string who = next == equal_since + 1
                                ? fmt::format("rank {}", equal_since)
                                : fmt::format("ranks {}-{}", equal_since, next - 1);
    out << fmt::format("    {:<19}", who) << previous << '\n';
  };
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const MemoryPoint peak = memory_timeline(ranks[rank].memory).peak;
    const std::int64_t scratch = ranks[rank].workspace_bytes;
    const auto total = static_cast<double>(peak.total() + scratch);
    all_bytes += total;
    std::string line = fmt::format(" {:>12}", format_bytes(total));
    for (std::size_t category = 0; category < num_categories; ++category)
      line += fmt::format(" {:>13}", format_bytes(static_cast<double>(peak.bytes[category])));
    line += fmt::format(" {:>13}", format_bytes(static_cast<double>(scratch)));
    if (line == previous) continue;
    flush(rank);
    previous = std::move(line);
    equal_since = rank;
  }
  flush(ranks.size());
  const auto here = static_cast<double>(memory_total_bytes());
  if (all_bytes > here)
    out << fmt::format("    all ranks need {}, more than this host's {}: here the row is skipped\n",
                       format_bytes(all_bytes), format_bytes(here));
}

/// " (tp=tree, the others as a ring)": by what the operations' bytes are counted.
std::string counted_by(const PlanChoice& plans) {
  std::string text;
  for (const auto& [axis, algorithm] : plans.algorithms)
    text += fmt::format("{}={}, ", name_of(axis), algorithm);
  return text.empty() ? text : fmt::format(" ({}the others as a ring)", text);
}

void print_communication(std::ostream& out, const Case& config, const Recording& rank,
                         const Options& options) {
  const auto volume = communication_volume(config.layer, config.phase);
  if (volume.empty()) {
    out << "  communication: none\n";
    return;
  }
  const std::string by = counted_by(options.runner.plans);
  const std::string counts = count_collectives(volume);
  out << fmt::format("  communication of rank 0: {}{}{} by formula{}, {} by operations{}\n", counts,
                     counts.empty() ? "" : ": ", format_bytes(total_bytes(volume)),
                     by.empty() ? "" : " (the ring's)", format_bytes(rank.bytes_wire), by);
  constexpr std::size_t few = 16;
  if (!options.verbose && volume.size() > few) return;
  for (const VolumeLine& line : volume)
    out << fmt::format("    {:<60} {:>10} = {}\n", line.what, format_bytes(line.bytes),
                       line.formula);
}

/// Says that the formulas and the operations of rank 0 disagree about bytes; empty if they agree,
/// or if they need not: plans move their own bytes, and a line may be counted from the operations.
std::string differing_bytes(const Case& config, const Recording& rank, const PlanChoice& plans) {
  const auto volume = communication_volume(config.layer, config.phase);
  const bool is_counted = std::ranges::any_of(volume, [](const VolumeLine& line) {
    return line.formula.find("counted from the plan") != std::string::npos;
  });
  const double formula = total_bytes(volume);
  constexpr double rounding_bytes = 0.5;
  if (!plans.algorithms.empty() || is_counted ||
      std::abs(formula - rank.bytes_wire) <= rounding_bytes)
    return {};
  return fmt::format("rank 0: {:.1f} bytes across the link by formula, but {:.1f} by operations",
                     formula, rank.bytes_wire);
}

/// `problems`: those found already. Returns the number of problems.
std::size_t print_problems(std::ostream& out, std::vector<Recording>& ranks,
                           std::vector<std::string> problems) {
  std::vector<std::vector<OpRecord>> ops;
  for (Recording& rank : ranks) ops.push_back(std::move(rank.ops));
  for (std::size_t rank = 0; rank < ops.size(); ++rank)
    for (const std::string& race : find_races(ops[rank]))
      problems.push_back(fmt::format("rank {}: {}", rank, race));
  std::ranges::move(check_matching(ops), std::back_inserter(problems));
  std::ranges::move(find_deadlock(ops), std::back_inserter(problems));
  out << (problems.empty() ? "  checks: no race, all collectives match, no deadlock\n"
                           : "  checks: PROBLEMS\n");
  for (const std::string& problem : problems) out << "    " << problem << '\n';
  return problems.size();
}

/// Returns the number of problems.
std::size_t print_case(std::ostream& out, const Options& options, const Case& config) {
  out << describe(config) << '\n';
  if (!config.skip_reason.empty()) {
    out << "  skipped: " << config.skip_reason << "\n\n";
    return 0;
  }
  std::vector<Recording> ranks = record_ranks(config, options.runner.threads_per_rank);
  apply_plans(ranks, options.runner.plans);
  const ModelFlops flops = model_flops(config.layer, config.phase);
  out << fmt::format("  model FLOPs over all ranks: {} causal, {} full; executed by rank 0: {}\n",
                     format_flops(flops.causal), format_flops(flops.full),
                     format_flops(ranks.front().flops));
  print_counts(out, ranks.front().ops);
  print_communication(out, config, ranks.front(), options);
  print_memory(out, ranks);
  if (options.verbose)
    for (const OpRecord& record : ranks.front().ops) out << "    " << to_string(record) << '\n';
  std::vector<std::string> found;
  if (std::string differ = differing_bytes(config, ranks.front(), options.runner.plans);
      !differ.empty())
    found.push_back(std::move(differ));
  const std::size_t problems = print_problems(out, ranks, std::move(found));
  out << '\n';
  return problems;
}

}  // namespace

bool dry_run(std::ostream& out, const Options& options, const Sweep& sweep) {
  std::size_t num_problems = 0;
  for (const std::string& notice : sweep.notices) out << "# " << notice << '\n';
  for (const Case& config : sweep.cases) num_problems += print_case(out, options, config);
  return num_problems == 0;
}

}  // namespace shardmark::bench
