#include "bench/analyze/csv.hpp"
#include "bench/analyze/summary.hpp"
#include "bench/harness/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>
#include <utility>

namespace shardmark::bench::analyze {
namespace {

constexpr std::size_t name_width = 60;

std::string rate(double GBps) { return GBps > 0 ? fmt::format("{:.2f}", GBps) : "-"; }

void print_categories(std::ostream& out, const RunDiff& diff, const TimeUnit& unit) {
  if (diff.categories.empty()) return;
  constexpr const char* format = "{:<8} {:<14} {:>12} {:>12} {:>12}\n";
  out << "\nWhere the time went\n"
      << fmt::format(format, "rank", "", unit.heading("A"), unit.heading("B"), unit.heading("B-A"));
  for (const CategoryChange& change : diff.categories)
    out << fmt::format(format, change.rank < 0 ? "mean" : fmt::format("{}", change.rank),
                       change.category, unit.text(change.time.a_ns), unit.text(change.time.b_ns),
                       unit.change(change.time.delta_ns()));
}

}  // namespace

void print_collectives(std::ostream& out, const Report& report) {
  const auto place = report.most_exposed();
  if (report.collectives.empty() || !place || report.options.top == 0) return;
  const int rank = report.ranks[*place].rank;
  std::vector<const CollectiveRow*> rows;
  for (const CollectiveRow& row : report.collectives)
    if (row.rank == rank) rows.push_back(&row);
  if (rows.empty()) return;
  std::ranges::stable_sort(rows, std::ranges::greater{}, &CollectiveRow::total_us);
  out << fmt::format(
      "\nCollectives{}\n# total and exposed: what lies in the window; the rest of whole calls, "
      "also "
      "of those that lie in it in part.\n# GB/s at the median call, waiting included; busbw with "
      "nccl-tests' factor for the group's size. GB = 1e9 bytes.\n",
      report.ranks.size() > 1
          ? fmt::format(" of rank {}, which has the largest share exposed", rank)
          : "");
  constexpr const char* format =
      "{:<15} {:<12} {:<4} {:>4} {:<13} {:>10} {:>6} {:>10} {:>10} {:>10} {:>11} {:>6} {:>8} "
      "{:>8}\n";
  const TimeUnit unit = report.time_unit();
  const auto ns_of = [](double us) { return std::llround(us * 1e3); };
  out << fmt::format(format, "kind", "group", "axis", "size", "dtype", "bytes", "calls", "p50(us)",
                     "p95(us)", unit.heading("total"), unit.heading("exposed"), "%", "algbw",
                     "busbw");
  const auto num_shown = std::min(rows.size(), static_cast<std::size_t>(report.options.top));
  const auto text_or_dash = [](const std::string& text) { return text.empty() ? "-" : text; };
  for (std::size_t i = 0; i < num_shown; ++i) {
    const CollectiveRow& row = *rows[i];
    out << fmt::format(
        format, shortened(row.kind, 15), shortened(text_or_dash(row.group), 12),
        text_or_dash(row.purpose), row.group_size > 0 ? fmt::format("{}", row.group_size) : "?",
        shortened(text_or_dash(row.dtype), 13),
        row.bytes >= 0 ? format_bytes(static_cast<double>(row.bytes)) : "?", row.count,
        fmt::format("{:.1f}", row.p50_us), fmt::format("{:.1f}", row.p95_us),
        unit.text(ns_of(row.total_us)), unit.text(ns_of(row.exposed_us)),
        fmt::format("{:.1f}", percent_of(ns_of(row.exposed_us), ns_of(row.total_us))),
        rate(row.algbw_GBps), rate(row.busbw_GBps));
  }
  if (rows.size() > num_shown)
    out << fmt::format("... and {} more: --top {} shows them\n", rows.size() - num_shown,
                       rows.size());
}

void print_kernels(std::ostream& out, const Report& report) {
  struct Total {
    std::int64_t count{0}, total_ns{0}, max_ns{0};
  };
  std::map<std::pair<std::string, WorkClass>, Total> totals;
  std::int64_t all_ns = 0;
  for (const RankReport& rank : report.ranks)
    for (const KernelTotal& kernel : rank.kernels) {
      Total& total = totals[{kernel.name, kernel.work}];
      total.count += kernel.count;
      total.total_ns += kernel.total_ns;
      total.max_ns = std::max(total.max_ns, kernel.max_ns);
      all_ns += kernel.total_ns;
    }
  std::vector<std::pair<std::pair<std::string, WorkClass>, Total>> rows{totals.begin(),
                                                                        totals.end()};
  std::ranges::stable_sort(rows, std::ranges::greater{},
                           [](const auto& row) { return row.second.total_ns; });
  const auto num_shown = std::min(rows.size(), static_cast<std::size_t>(report.options.top));
  if (num_shown == 0) return;
  out << fmt::format("\nTop kernels{}: durations in the window, % of the sum of all\n",
                     report.ranks.size() > 1 ? ", all ranks together" : "");
  constexpr const char* format = "{:<60} {:<13} {:>8} {:>12} {:>6} {:>10} {:>10}\n";
  const TimeUnit unit = report.time_unit();
  out << fmt::format(format, "name", "", "calls", unit.heading("total"), "%", "mean(us)",
                     "max(us)");
  for (std::size_t i = 0; i < num_shown; ++i) {
    const auto& [key, total] = rows[i];
    out << fmt::format(
        format, shortened(key.first, name_width), name_of(key.second), total.count,
        unit.text(total.total_ns), fmt::format("{:.1f}", percent_of(total.total_ns, all_ns)),
        fmt::format("{:.1f}", static_cast<double>(total.total_ns) / 1e3 /
                                  static_cast<double>(std::max<std::int64_t>(total.count, 1))),
        fmt::format("{:.1f}", static_cast<double>(total.max_ns) / 1e3));
  }
}

void print_gaps(std::ostream& out, const Report& report) {
  struct Row {
    const RankReport* rank;
    const Gap* gap;
  };
  std::vector<Row> rows;
  for (const RankReport& rank : report.ranks)
    for (const Gap& gap : rank.gaps) rows.push_back({&rank, &gap});
  const auto length = [](const Row& row) { return row.gap->time.end_ns - row.gap->time.start_ns; };
  std::ranges::stable_sort(rows, std::ranges::greater{}, length);
  const auto num_shown = std::min(rows.size(), static_cast<std::size_t>(report.options.top));
  if (num_shown == 0) return;
  out << "\nLongest gaps, in which a device does nothing\n"
         "# host-bound: for most of it the host had not launched what comes next; waiting: it had; "
         "unknown: the launch is not in the file.\n";
  constexpr const char* format = "{:<5} {:>14} {:>12} {:<10} {}\n";
  const TimeUnit unit = report.time_unit();
  out << fmt::format(format, "rank", unit.heading("start"), unit.heading("length"), "cause",
                     "before -> after");
  for (std::size_t i = 0; i < num_shown; ++i) {
    const auto& [rank, gap] = rows[i];
    const auto side = [](const std::string& name, const char* nothing) {
      return name.empty() ? std::string{nothing} : shortened(name, 40);
    };
    out << fmt::format(
        format, rank->rank, unit.text(gap->time.start_ns - rank->begin_ns),
        unit.text(length(rows[i])), name_of(gap->cause),
        fmt::format("{} -> {}", side(gap->before, "(begin)"), side(gap->after, "(end)")));
  }
}

void print_diff(std::ostream& out, const RunDiff& diff, std::size_t top) {
  std::int64_t longest_ns = 0;
  for (const CategoryChange& change : diff.categories)
    longest_ns = std::max({longest_ns, change.time.a_ns, change.time.b_ns});
  const TimeUnit unit = unit_for(longest_ns);
  print_categories(out, diff, unit);
  constexpr const char* format = "{:<60} {:>8} {:>8} {:>12} {:>12} {:>12}\n";
  const auto print = [&](const std::string& name, std::int64_t a_count, std::int64_t b_count,
                         const Change& total) {
    out << fmt::format(format, shortened(name, name_width), a_count, b_count, unit.text(total.a_ns),
                       unit.text(total.b_ns), unit.change(total.delta_ns()));
  };
  if (!diff.collectives.empty() && top > 0)
    out << "\nCollectives, all ranks together\n"
        << fmt::format(format, "", "calls A", "calls B", unit.heading("A"), unit.heading("B"),
                       unit.heading("B-A"));
  for (std::size_t i = 0; i < std::min(top, diff.collectives.size()); ++i) {
    const CollectiveChange& change = diff.collectives[i];
    std::string name = change.kind;
    if (!change.group.empty()) name += " in group " + change.group;
    if (change.bytes >= 0) name += " of " + format_bytes(static_cast<double>(change.bytes));
    print(name, change.a_count, change.b_count, change.total);
    if (change.wait.a_ns != change.wait.b_ns)
      print("  of it waiting for a late rank", change.a_count, change.b_count, change.wait);
  }
  if (!diff.kernels.empty() && top > 0)
    out << "\nKernels, all ranks together\n"
        << fmt::format(format, "", "calls A", "calls B", unit.heading("A"), unit.heading("B"),
                       unit.heading("B-A"));
  for (std::size_t i = 0; i < std::min(top, diff.kernels.size()); ++i) {
    const KernelChange& change = diff.kernels[i];
    print(change.name, change.a_count, change.b_count, change.total);
  }
  if (!diff.warnings.empty()) out << "\nWarnings\n";
  for (const std::string& warning : diff.warnings) out << "  " << warning << '\n';
  out << '\n' << diff.conclusion << std::endl;
}

}  // namespace shardmark::bench::analyze
