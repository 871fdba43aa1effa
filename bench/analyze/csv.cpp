#include "bench/analyze/csv.hpp"

#include "bench/harness/csv.hpp"
#include "core/error.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <span>

namespace shardmark::bench::analyze {
namespace {

Cell none() { return {}; }
Cell word(std::string text) { return {std::move(text), false}; }
Cell flag(bool value) { return {value ? "true" : "false", false}; }
Cell count(std::int64_t value) { return {fmt::format("{}", value), true}; }
Cell count_if_known(std::int64_t value, std::int64_t least) {
  return value < least ? none() : count(value);
}
Cell us(std::int64_t ns) { return {us_text(ns), true}; }
/// Rates, ratios and times that are no whole nanoseconds: six significant digits.
Cell real(double value) { return {fmt::format("{:.6g}", value), true}; }
Cell real_if_known(double value) { return value > 0 ? real(value) : none(); }
/// Four decimals, as many as a nanosecond in a millisecond has.
Cell percent(std::int64_t part_ns, std::int64_t whole_ns) {
  return whole_ns > 0 ? Cell{fmt::format("{:.4f}", percent_of(part_ns, whole_ns)), true} : none();
}

template <class Row>
struct Column {
  const char *name, *unit, *meaning;
  Cell (*value)(const Row&);
};

template <class Row>
Table make_table(const char* name, const std::vector<Column<Row>>& columns,
                 const std::vector<Row>& rows) {
  Table table{name, {}, {}};
  for (const Column<Row>& column : columns)
    table.columns.push_back({column.name, column.unit, column.meaning});
  for (const Row& row : rows) {
    std::vector<Cell>& cells = table.rows.emplace_back();
    for (const Column<Row>& column : columns) cells.push_back(column.value(row));
  }
  return table;
}

/// One rank and window.
struct ResultRow {
  const Report& report;
  std::size_t place;
  const Account& account;
  bool is_whole;  ///< the chosen window itself, no step

  [[nodiscard]] const RankReport& rank() const { return report.ranks[place]; }
};
using R = const ResultRow&;

Cell of_whole(R row, Cell cell) { return row.is_whole ? std::move(cell) : none(); }
Cell across_ns(R row, std::int64_t RankAcross::*member) {
  if (!row.is_whole || !row.report.across) return none();
  return us(row.report.across->ranks[row.place].*member);
}
Cell mfu_value(R row, double Mfu::*member) {
  return row.is_whole && row.report.mfu ? real((*row.report.mfu).*member) : none();
}

std::vector<Column<ResultRow>> identity_columns() {
  return {
      {"schema_version", "", "version of this table", [](R) { return count(schema_version); }},
      {"source", "", "recorded", [](R) { return word("recorded"); }},
      {"file", "", "where the rank is from", [](R r) { return word(r.rank().file); }},
      {"format", "", "who recorded it", [](R r) { return word(r.rank().format); }},
      {"device", "", "name of the device, if the file says",
       [](R r) { return word(r.rank().device_name); }},
      {"comm_rule", "", "what counts as communication: auto, nccl or wide",
       [](R r) { return word(std::string{name_of(r.report.options.rule)}); }},
      {"world_size", "ranks", "of the job", [](R r) { return count(r.report.world_size); }},
      {"rank", "", "of the world", [](R r) { return count(r.rank().rank); }},
      {"window", "", "trace (first start to last end of device work), what was chosen, or a step",
       [](R r) { return word(r.account.window.name); }},
      {"window_start_us", "us",
       "from the first device work of any rank, clocks aligned where that can be",
       [](R r) { return us(r.account.span.start_ns - r.rank().begin_ns); }},
  };
}

std::vector<Column<ResultRow>> time_columns() {
  return {
      {"num_kernels", "", "kernels in the window, also in part, those that communicate included",
       [](R r) { return count(r.account.num_kernels); }},
      {"num_comm", "", "of them those that communicate",
       [](R r) { return count(r.account.num_comm); }},
      {"num_copies", "", "copies and sets", [](R r) { return count(r.account.num_copies); }},
      {"window_us", "us", "length of the window = comp + exposed_comm + exposed_mem + idle",
       [](R r) { return us(r.account.span_ns); }},
      {"busy_us", "us", "union of all device work", [](R r) { return us(r.account.busy_ns); }},
      {"comp_us", "us", "union of kernels that do not communicate",
       [](R r) { return us(r.account.compute_ns); }},
      {"comm_us", "us", "union of communication, waiting for peers included",
       [](R r) { return us(r.account.comm_ns); }},
      {"mem_us", "us", "union of copies and sets", [](R r) { return us(r.account.copy_ns); }},
      {"exposed_comm_us", "us", "communication while no compute kernel runs",
       [](R r) { return us(r.account.exposed_comm_ns); }},
      {"overlapped_us", "us", "communication while compute kernels run",
       [](R r) { return us(r.account.overlapped_ns); }},
      {"exposed_mem_us", "us", "copies and sets while neither compute nor communication runs",
       [](R r) { return us(r.account.exposed_copy_ns); }},
      {"three_way_us", "us", "compute, communication and copies at once",
       [](R r) { return us(r.account.three_way_ns); }},
      {"idle_us", "us", "nothing runs", [](R r) { return us(r.account.idle_ns); }},
      {"residual_us", "us",
       "window - comp - exposed_comm - exposed_mem - idle, each measured apart",
       [](R r) { return us(r.account.residual_ns); }},
      {"idle_host_us", "us", "idle until the host had launched the next work; of the whole window",
       [](R r) { return of_whole(r, us(r.rank().idle.host_bound_ns)); }},
      {"idle_waiting_us", "us", "idle although the next work was launched",
       [](R r) { return of_whole(r, us(r.rank().idle.waiting_ns)); }},
      {"idle_unknown_us", "us", "idle, and the launch of the next work is not in the file",
       [](R r) { return of_whole(r, us(r.rank().idle.unknown_ns)); }},
      {"peer_copy_us", "us", "union of copies between devices, which are part of mem_us",
       [](R r) { return of_whole(r, us(r.rank().peer_copies.total_ns)); }},
      {"wait_us", "us",
       "duration of matched collectives beyond the shortest of their members: waiting for peers",
       [](R r) { return across_ns(r, &RankAcross::wait_ns); }},
      {"transfer_us", "us", "the shortest durations: what is left without waiting",
       [](R r) { return across_ns(r, &RankAcross::transfer_ns); }},
  };
}

std::vector<Column<ResultRow>> rate_columns() {
  return {
      {"overlap_pct", "%", "overlapped_us / comm_us; empty where nothing communicates",
       [](R r) { return percent(r.account.overlapped_ns, r.account.comm_ns); }},
      {"comp_pct", "%", "comp_us / window_us",
       [](R r) { return percent(r.account.compute_ns, r.account.span_ns); }},
      {"exposed_comm_pct", "%", "exposed_comm_us / window_us",
       [](R r) { return percent(r.account.exposed_comm_ns, r.account.span_ns); }},
      {"exposed_mem_pct", "%", "exposed_mem_us / window_us",
       [](R r) { return percent(r.account.exposed_copy_ns, r.account.span_ns); }},
      {"idle_pct", "%", "idle_us / window_us",
       [](R r) { return percent(r.account.idle_ns, r.account.span_ns); }},
      {"num_zero", "", "events without a length in the file: they take no time",
       [](R r) { return count(r.account.num_zero); }},
      {"num_negative", "", "events that end before they begin: they take no time",
       [](R r) { return count(r.account.num_negative); }},
      {"tflops_per_device", "TFLOP/s", "model FLOPs of a step over its time and the devices",
       [](R r) { return mfu_value(r, &Mfu::tflops_per_device); }},
      {"mfu_causal_pct", "%", "it over peak_tflops, causal attention",
       [](R r) { return mfu_value(r, &Mfu::mfu_causal_pct); }},
      {"mfu_full_pct", "%", "the same with full attention",
       [](R r) { return mfu_value(r, &Mfu::mfu_full_pct); }},
      {"peak_tflops", "TFLOP/s", "dense peak of one device",
       [](R r) { return mfu_value(r, &Mfu::peak_tflops); }},
      {"peak_source", "", "where the peak is from",
       [](R r) { return r.is_whole && r.report.mfu ? word(r.report.mfu->peak_source) : none(); }},
      {"verdict", "",
       "of the run: imbalanced, bubble_bound, communication_bound, compute_bound, none",
       [](R r) { return of_whole(r, word(r.report.verdict.name)); }},
      {"verdict_reason", "", "the numbers behind it and one thing to try",
       [](R r) { return of_whole(r, word(r.report.verdict.reason)); }},
  };
}

Table results_of(const Report& report) {
  std::vector<Column<ResultRow>> columns = identity_columns();
  for (const auto& more : {time_columns(), rate_columns()})
    columns.insert(columns.end(), more.begin(), more.end());
  std::vector<ResultRow> rows;
  for (std::size_t i = 0; i < report.ranks.size(); ++i) {
    const RankReport& rank = report.ranks[i];
    if (rank.total) rows.push_back({report, i, *rank.total, true});
    for (const Account& step : rank.steps) rows.push_back({report, i, step, false});
  }
  return make_table("results", columns, rows);
}

Table collectives_of(const Report& report) {
  using C = const CollectiveRow&;
  return make_table<CollectiveRow>(
      "collectives",
      {
          {"rank", "", "of the world", [](C c) { return count(c.rank); }},
          {"kind", "", "all_reduce, all_gather, reduce_scatter, ..., send_recv; ? if unknown",
           [](C c) { return word(c.kind); }},
          {"group", "", "name of the process group, if the file says",
           [](C c) { return word(c.group); }},
          {"purpose", "", "tp, pp, dp, cp, ep or ?", [](C c) { return word(c.purpose); }},
          {"group_size", "ranks", "members of the group",
           [](C c) { return count_if_known(c.group_size, 1); }},
          {"dtype", "", "as the file says", [](C c) { return word(c.dtype); }},
          {"bytes", "B", "message size as bus bandwidth counts it (nccl-tests)",
           [](C c) { return count_if_known(c.bytes, 0); }},
          {"count", "", "calls", [](C c) { return count(c.count); }},
          {"total_us", "us", "of all calls, waiting for peers included",
           [](C c) { return real(c.total_us); }},
          {"exposed_us", "us", "of it, not under compute", [](C c) { return real(c.exposed_us); }},
          {"p50_us", "us", "median call", [](C c) { return real(c.p50_us); }},
          {"p95_us", "us", "95th percentile", [](C c) { return real(c.p95_us); }},
          {"min_us", "us", "shortest call", [](C c) { return real(c.min_us); }},
          {"max_us", "us", "longest call", [](C c) { return real(c.max_us); }},
          {"algbw_GBps", "GB/s", "bytes over p50_us; GB = 1e9 B",
           [](C c) { return real_if_known(c.algbw_GBps); }},
          {"busbw_GBps", "GB/s", "algbw times nccl-tests' factor for group_size",
           [](C c) { return real_if_known(c.busbw_GBps); }},
          {"kernel", "", "name of the first kernel", [](C c) { return word(c.kernel); }},
      },
      report.collectives);
}

struct KernelRow {
  int rank;
  const KernelTotal& kernel;
};
Table kernels_of(const Report& report) {
  using K = const KernelRow&;
  std::vector<KernelRow> rows;
  for (const RankReport& rank : report.ranks)
    for (const KernelTotal& kernel : rank.kernels) rows.push_back({rank.rank, kernel});
  return make_table<KernelRow>(
      "kernels",
      {
          {"rank", "", "of the world", [](K k) { return count(k.rank); }},
          {"kernel", "", "name", [](K k) { return word(k.kernel.name); }},
          {"kind", "", "compute, communication or memory",
           [](K k) { return word(std::string{name_of(k.kernel.work)}); }},
          {"between_devices", "", "a copy from one device to another",
           [](K k) { return flag(k.kernel.between_devices); }},
          {"count", "", "in the window", [](K k) { return count(k.kernel.count); }},
          {"total_us", "us", "sum of durations; overlapping ones count twice",
           [](K k) { return us(k.kernel.total_ns); }},
          {"mean_us", "us", "total over count", [](K k) { return real(k.kernel.mean_us); }},
          {"min_us", "us", "shortest", [](K k) { return us(k.kernel.min_ns); }},
          {"max_us", "us", "longest", [](K k) { return us(k.kernel.max_ns); }},
          {"share_pct", "%", "total_us of the sum of all durations of the rank",
           [](K k) { return real(k.kernel.share_pct); }},
      },
      rows);
}

struct MatchedRow {
  const Report& report;
  const MatchedCollective& collective;
  std::size_t member;

  [[nodiscard]] std::size_t place() const {
    return static_cast<std::size_t>(collective.ranks[member]);
  }
};
Table across_table(const Report& report) {
  using M = const MatchedRow&;
  std::vector<MatchedRow> rows;
  if (report.across)
    for (const MatchedCollective& collective : report.across->collectives)
      for (std::size_t i = 0; i < collective.ranks.size(); ++i)
        rows.push_back({report, collective, i});
  return make_table<MatchedRow>(
      "across",
      {
          {"group", "", "process group", [](M m) { return word(m.collective.group); }},
          {"number", "", "of the collective in its group",
           [](M m) { return count(m.collective.number); }},
          {"kind", "", "which collective", [](M m) { return word(m.collective.kind); }},
          {"rank", "", "member", [](M m) { return count(m.report.ranks[m.place()].rank); }},
          {"arrival_us", "us", "start from the first device work of any rank, clocks aligned",
           [](M m) {
             const std::int64_t begin_ns =
                 m.report.ranks[m.place()].begin_ns + m.report.across->clocks.offset_ns[m.place()];
             return us(m.collective.arrival_ns[m.member] - begin_ns);
           }},
          {"clock_bound_us", "us", "the rank's clock is right to within this",
           [](M m) { return us(m.report.across->clocks.bound_ns[m.place()]); }},
          {"duration_us", "us", "of this member's kernel",
           [](M m) { return us(m.collective.duration_ns[m.member]); }},
          {"transfer_us", "us", "shortest duration of the members; empty if one has no file",
           [](M m) { return m.collective.complete ? us(m.collective.transfer_ns) : none(); }},
          {"wait_us", "us", "duration_us - transfer_us",
           [](M m) {
             return m.collective.complete
                        ? us(m.collective.duration_ns[m.member] - m.collective.transfer_ns)
                        : none();
           }},
          {"is_last", "", "it came last, and the others waited for it",
           [](M m) { return flag(m.collective.last_arriver == m.collective.ranks[m.member]); }},
          {"is_complete", "", "every member of the group has a file",
           [](M m) { return flag(m.collective.complete); }},
      },
      rows);
}

struct GapRow {
  const RankReport& rank;
  const Gap& gap;
};
Table gaps_of(const Report& report) {
  using G = const GapRow&;
  std::vector<GapRow> rows;
  for (const RankReport& rank : report.ranks)
    for (const Gap& gap : rank.gaps) rows.push_back({rank, gap});
  return make_table<GapRow>(
      "gaps",
      {
          {"rank", "", "of the world", [](G g) { return count(g.rank.rank); }},
          {"start_us", "us", "from the first device work of any rank",
           [](G g) { return us(g.gap.time.start_ns - g.rank.begin_ns); }},
          {"duration_us", "us", "in which nothing runs",
           [](G g) { return us(g.gap.time.end_ns - g.gap.time.start_ns); }},
          {"cause", "", "host_bound, waiting or unknown",
           [](G g) { return word(std::string{name_of(g.gap.cause)}); }},
          {"launched_after_us", "us", "host_bound: from the gap's begin to the launch",
           [](G g) { return g.gap.cause == GapCause::host_bound ? us(g.gap.late_ns) : none(); }},
          {"before", "", "work before it", [](G g) { return word(g.gap.before); }},
          {"after", "", "work after it", [](G g) { return word(g.gap.after); }},
      },
      rows);
}

}  // namespace

std::vector<Table> tables_of(const Report& report) {
  return {results_of(report), collectives_of(report), kernels_of(report), across_table(report),
          gaps_of(report)};
}

std::string csv_text(const Table& table) {
  std::vector<std::string> cells;
  for (const Table::Column& column : table.columns) cells.push_back(column.name);
  std::string text = csv_line(cells);
  for (const std::vector<Cell>& row : table.rows) {
    cells.clear();
    for (const Cell& cell : row) cells.push_back(cell.text);
    text += csv_line(cells);
  }
  return text;
}

std::string columns_markdown() {
  std::string text;
  for (const Table& table : tables_of({})) {
    text += message(text.empty() ? "" : "\n", "### ", table.name, ".csv of shardmark-analyze\n\n",
                    "| Column | Unit | Meaning |\n|---|---|---|\n");
    for (const Table::Column& column : table.columns)
      text += message("| `", column.name, "` | ", column.unit, " | ", column.meaning, " |\n");
  }
  return text;
}

std::string_view name_of(WorkClass work) {
  switch (work) {
    case WorkClass::compute:
      return "compute";
    case WorkClass::communication:
      return "communication";
    case WorkClass::memory:
      return "memory";
  }
  return "";
}

std::string us_text(std::int64_t ns) {
  const std::int64_t whole = ns / 1000, rest = std::abs(ns % 1000);
  return fmt::format("{}{}.{:03}", ns < 0 && whole == 0 ? "-" : "", whole, rest);
}

}  // namespace shardmark::bench::analyze
