#include "bench/analyze/cells.hpp"

namespace shardmark::bench::analyze {
namespace {

struct KernelRow {
  int rank;
  const KernelTotal& kernel;
};

/// A member of a collective.
struct MatchedRow {
  const Report& report;
  const MatchedCollective& collective;
  std::size_t member;

  [[nodiscard]] std::size_t place() const {
    return static_cast<std::size_t>(collective.ranks[member]);
  }
};

struct RowOfStage {
  const Report& report;
  const StageRow& stage;
};

struct GapRow {
  const RankReport& rank;
  const Gap& gap;
};

}  // namespace

Table collectives_table(const Report& report) {
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
          {"count", "", "calls in the window, also in part", [](C c) { return count(c.count); }},
          {"total_us", "us", "of all calls what lies in the window, waiting for peers included",
           [](C c) { return us_of(c.total_us); }},
          {"exposed_us", "us",
           "of the union of the calls what lies in the window, not under compute",
           [](C c) { return us_of(c.exposed_us); }},
          {"exposed_pct", "%", "exposed_us / total_us",
           [](C c) { return c.total_us > 0 ? real(100 * c.exposed_us / c.total_us) : none(); }},
          {"p50_us", "us", "median of the whole calls", [](C c) { return us_of(c.p50_us); }},
          {"p95_us", "us", "95th percentile", [](C c) { return us_of(c.p95_us); }},
          {"min_us", "us", "shortest call", [](C c) { return us_of(c.min_us); }},
          {"max_us", "us", "longest call", [](C c) { return us_of(c.max_us); }},
          {"algbw_GBps", "GB/s", "bytes over p50_us; GB = 1e9 B",
           [](C c) { return real_if_known(c.algbw_GBps); }},
          {"busbw_GBps", "GB/s", "algbw times nccl-tests' factor for group_size",
           [](C c) { return real_if_known(c.busbw_GBps); }},
          {"kernel", "", "name of the first kernel", [](C c) { return word(c.kernel); }},
      },
      report.collectives);
}

Table kernels_table(const Report& report) {
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
          {"count", "", "in the window, also in part", [](K k) { return count(k.kernel.count); }},
          {"total_us", "us", "sum of durations in the window; overlapping ones count twice",
           [](K k) { return us(k.kernel.total_ns); }},
          {"mean_us", "us", "total over count", [](K k) { return us_of(k.kernel.mean_us); }},
          {"min_us", "us", "shortest", [](K k) { return us(k.kernel.min_ns); }},
          {"max_us", "us", "longest", [](K k) { return us(k.kernel.max_ns); }},
          {"share_pct", "%", "total_us of the sum of all durations of the rank",
           [](K k) { return real(k.kernel.share_pct); }},
      },
      rows);
}

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
          {"bytes", "B", "message size as bus bandwidth counts it",
           [](M m) { return count_if_known(m.collective.bytes, 0); }},
          {"rank", "", "member", [](M m) { return count(m.report.ranks[m.place()].rank); }},
          {"arrival_us", "us", "start from the first device work of any rank, clocks aligned",
           [](M m) {
             const std::int64_t begin_ns =
                 m.report.ranks[m.place()].begin_ns + m.report.across->clocks.offset_ns[m.place()];
             return us(m.collective.arrival_ns[m.member] - begin_ns);
           }},
          {"clock_bound_us", "us", "the rank's clock is right to within this; empty if unknown",
           [](M m) {
             const ClockAlignment& clocks = m.report.across->clocks;
             return clocks.knows(m.place()) ? us(clocks.bound_ns[m.place()]) : none();
           }},
          {"duration_us", "us", "of this member's kernel",
           [](M m) { return us(m.collective.duration_ns[m.member]); }},
          {"transfer_us", "us", "shortest duration of the members; empty if one has no file",
           [](M m) { return m.collective.complete ? us(m.collective.transfer_ns) : none(); }},
          {"wait_us", "us", "duration_us - transfer_us",
           [](M m) { return m.collective.complete ? us(m.collective.wait_ns(m.member)) : none(); }},
          {"is_last", "", "it came last, and the others waited for it",
           [](M m) { return flag(m.collective.last_arriver == m.collective.ranks[m.member]); }},
          {"is_complete", "", "every member has a file, and none can leave before all have come",
           [](M m) { return flag(m.collective.complete); }},
      },
      rows);
}

Table stages_table(const Report& report) {
  using S = const RowOfStage&;
  std::vector<RowOfStage> rows;
  for (const StageRow& stage : report.stages.rows) rows.push_back({report, stage});
  return make_table<RowOfStage>(
      "stages",
      {
          {"pipeline", "", "ranks that exchange messages with each other, from 0",
           [](S s) { return count(s.stage.pipeline); }},
          {"stage", "", "from 0", [](S s) { return count(s.stage.stage); }},
          {"rank", "", "of the world",
           [](S s) { return count(s.report.ranks[static_cast<std::size_t>(s.stage.rank)].rank); }},
          {"num_messages", "", "sends and receives in the window, also in part",
           [](S s) { return count(s.stage.num_messages); }},
          {"message_bytes", "B", "of those whose size the file says",
           [](S s) { return count(s.stage.message_bytes); }},
          {"message_us", "us", "union of sends and receives",
           [](S s) { return us(s.stage.message_ns); }},
          {"window_us", "us",
           "first start to last end of work on any rank of the pipeline = "
           "comp + collective + exposed_mem + bubble",
           [](S s) { return us(s.stage.window_ns); }},
          {"comp_us", "us", "compute kernels", [](S s) { return us(s.stage.compute_ns); }},
          {"collective_us", "us", "communication that is no message, not under compute",
           [](S s) { return us(s.stage.collective_ns); }},
          {"exposed_mem_us", "us", "copies under neither", [](S s) { return us(s.stage.copy_ns); }},
          {"bubble_us", "us", "the rest = pp_wait + idle",
           [](S s) { return us(s.stage.bubble_ns); }},
          {"pp_wait_us", "us", "in sends and receives, their transfer included",
           [](S s) { return us(s.stage.wait_ns); }},
          {"idle_us", "us", "nothing runs", [](S s) { return us(s.stage.idle_ns); }},
          {"pp_start_us", "us", "of the bubble: before the first compute",
           [](S s) { return us(s.stage.fill_ns); }},
          {"pp_drain_us", "us", "of the bubble: after the last compute",
           [](S s) { return us(s.stage.drain_ns); }},
          {"bubble_of_total", "", "bubble_us over window_us",
           [](S s) { return real(s.stage.bubble_of_total); }},
      },
      rows);
}

Table gaps_table(const Report& report) {
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
          {"cause", "",
           "host-bound: for most of it the host had not launched the work after it; waiting: it "
           "had; "
           "unknown",
           [](G g) { return word(std::string{name_of(g.gap.cause)}); }},
          {"launched_after_us", "us",
           "from the gap's begin to the launch of the work after it; 0: launched before",
           [](G g) { return g.gap.cause == GapCause::unknown ? none() : us(g.gap.late_ns); }},
          {"before", "", "work before it", [](G g) { return word(g.gap.before); }},
          {"after", "", "work after it", [](G g) { return word(g.gap.after); }},
      },
      rows);
}

}  // namespace shardmark::bench::analyze
