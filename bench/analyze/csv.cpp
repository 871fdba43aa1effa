#include "bench/analyze/csv.hpp"

#include "bench/analyze/cells.hpp"
#include "bench/harness/csv.hpp"
#include "core/error.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <map>

namespace shardmark::bench::analyze {
namespace {

/// One rank and window.
struct ResultRow {
  const Report& report;
  std::size_t place;
  const Account& account;
  bool is_whole;           ///< the chosen window itself, no step
  const StepAcross* step;  ///< null if it is no step, or the first rank does not have it

  [[nodiscard]] const RankReport& rank() const { return report.ranks[place]; }
};
using R = const ResultRow&;

Cell of_whole(R row, Cell cell) { return row.is_whole ? std::move(cell) : none(); }
Cell across_ns(R row, std::int64_t RankAcross::*member) {
  if (!row.report.has_complete_collectives()) return none();
  if (row.is_whole) return us(row.report.across->ranks[row.place].*member);
  return row.step == nullptr ? none() : us(row.step->ranks[row.place].*member);
}
Cell is_critical(R row) {
  if (!row.report.across || (!row.is_whole && row.step == nullptr)) return none();
  const int critical = row.is_whole ? row.report.across->critical_rank : row.step->critical_rank;
  return critical < 0 ? none() : flag(critical == static_cast<int>(row.place));
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
       "duration of matched collectives beyond the shortest of their members: waiting for peers; "
       "of a step: of those that begin in it",
       [](R r) { return across_ns(r, &RankAcross::wait_ns); }},
      {"transfer_us", "us", "the shortest durations: what is left without waiting",
       [](R r) { return across_ns(r, &RankAcross::transfer_ns); }},
      {"is_critical", "",
       "the others waited longest for it, or, where nobody waits, it computes longest; empty if "
       "that is not known, or several are equal",
       is_critical},
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

Table results_table(const Report& report) {
  std::vector<Column<ResultRow>> columns = identity_columns();
  for (const auto& more : {time_columns(), rate_columns()})
    columns.insert(columns.end(), more.begin(), more.end());
  std::map<std::string, const StepAcross*> steps;
  if (report.across)
    for (const StepAcross& step : report.across->steps) steps["step:" + step.name] = &step;
  std::vector<ResultRow> rows;
  for (std::size_t i = 0; i < report.ranks.size(); ++i) {
    const RankReport& rank = report.ranks[i];
    if (rank.total) rows.push_back({report, i, *rank.total, true, nullptr});
    for (const Account& step : rank.steps) {
      const auto across = steps.find(step.window.name);
      rows.push_back({report, i, step, false, across == steps.end() ? nullptr : across->second});
    }
  }
  return make_table("results", columns, rows);
}

}  // namespace

std::vector<Table> tables_of(const Report& report) {
  return {results_table(report), collectives_table(report), kernels_table(report),
          across_table(report),  stages_table(report),      gaps_table(report)};
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
