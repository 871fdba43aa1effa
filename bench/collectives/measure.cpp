#include "bench/collectives/measure.hpp"

#include "bench/collectives/check.hpp"
#include "bench/collectives/overlap.hpp"
#include "bench/collectives/waits.hpp"
#include "bench/harness/statistics.hpp"
#include "bench/harness/together.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace shardmark::bench::collectives {
namespace {

constexpr double shortest_sample_us = 100;
constexpr std::size_t most_ops_queued = 20'000;

}  // namespace

Meter::Meter(const Options& options, const World& world, Workspace& workspace, const Clocks& clocks,
             Transport& transport, std::function<bool()> interrupted)
    : options_{options},
      world_{world},
      workspace_{workspace},
      clocks_{clocks},
      transport_{transport},
      interrupted_{std::move(interrupted)} {}

bool Meter::takes_part(Who who) const {
  return who == Who::all || same_members(world_.group, world_.mesh.group(0, world_.axis));
}

Meter::Entry Meter::make_entry(const Series& series, const Series::Size& size, const Task& task) {
  Entry entry;
  Row& row = entry.row;
  row.point = series.point;
  row.point.algorithm = task.variant.way->algorithm;
  row.point.in_place = task.variant.in_place;
  row.point.count = size.count;
  row.point.size_bytes = size.size_bytes;
  row.chosen = task.chosen;
  row.rank_scope = name_of(options_.scope);
  row.oversubscribed = transport_.wait_policy().yield;
  entry.call = workspace_.make_call(row.point, size.block_numel, row.point.in_place);
  entry.runnable = workspace_.make_runnable(row.point, task.plan, entry.call);
  entry.bytes_formula = formula_bytes(row.point, entry.call, *task.variant.way, task.plan,
                                      size.block_numel, world_.hosts);
  return entry;
}

/// One sample: a barrier, `count` calls, and the time of one of them on the rank that -a means.
double Meter::take_sample(const Runnable& runnable, int count, Who who) {
  struct Report {
    double time_us;
    bool interrupted;
  };
  const bool active = takes_part(who);
  const auto waiting = active ? Transport::Waiting::active : Transport::Waiting::idle;
  transport_.barrier(waiting);
  double mine_us = -1;
  if (active) {
    const std::int64_t begin = now_ns();
    workspace_.run(runnable, count, options_.blocking);
    mine_us = static_cast<double>(now_ns() - begin) / 1e3 / count;
  }
  const bool interrupted = interrupted_ && interrupted_();
  std::vector<double> times_us;
  bool any_interrupted = false;
  for (const Report& report : exchange_all(transport_, Report{mine_us, interrupted}, waiting)) {
    if (report.time_us >= 0) times_us.push_back(report.time_us);
    any_interrupted = any_interrupted || report.interrupted;
  }
  if (any_interrupted) throw Interrupted{};
  switch (options_.scope) {
    case Scope::rank_0:
      return times_us.front();
    case Scope::average:
      return std::accumulate(times_us.begin(), times_us.end(), 0.0) /
             static_cast<double>(times_us.size());
    case Scope::minimum:
      return std::ranges::min(times_us);
    case Scope::maximum:
      break;
  }
  return std::ranges::max(times_us);
}

/// Untimed samples. Returns about how long a call takes, in microseconds.
double Meter::warm_up(Entry& entry) {
  const int count = std::max(1, options_.warmup);
  double call_us = 0;
  for (int i = 0; i < count; ++i) call_us = take_sample(entry.runnable, 1, Who::all);
  entry.row.warmup = count;
  // A single call pays for the barrier before it; a few in a row do not. One that was interrupted
  // says nothing.
  constexpr int tries = 3;
  for (int i = 0; i < tries && call_us < shortest_sample_us; ++i) {
    const double again_us = take_sample(entry.runnable, 10, Who::all);
    call_us = i == 0 ? again_us : std::min(call_us, again_us);
  }
  return call_us;
}

/// Calls of a sample that lasts long enough where one takes `call_us`, and that the executor can
/// queue.
int Meter::calls_per_sample(double call_us, const std::vector<Entry>& entries) {
  std::size_t num_ops = 1;
  for (const Entry& entry : entries) num_ops = std::max(num_ops, entry.runnable.ops().size());
  const double wanted = std::ceil(shortest_sample_us / std::max(call_us, 0.05));
  const double most = std::max(1.0, static_cast<double>(most_ops_queued / num_ops));
  const double calls = std::clamp(wanted, static_cast<double>(options_.aggregate), 1000.0);
  // Ranks may differ in their own number of ops.
  return static_cast<int>(-transport_.maximum(-std::max(1.0, std::min(calls, most))));
}

/// Rounds over the entries until every median is known well enough or time is up.
void Meter::sample(std::vector<Entry>& entries, Entry& copy) {
  const double budget_s = options_.max_time_s * static_cast<double>(entries.size());
  const StopRule rule{options_.min_samples, budget_s};
  // In another order each round, the same on all ranks: what a sample finds in the caches is what
  // the one before left there.
  std::vector<Entry*> turns;
  for (Entry& entry : entries) turns.push_back(&entry);
  if (!copy.runnable.ops().empty()) turns.push_back(&copy);
  std::minstd_rand random{1};
  const std::int64_t begin = now_ns();
  for (int round = 0;; ++round) {
    bool all_stop = true;
    // Rank 0's clock, so that all ranks decide alike.
    const double elapsed_s =
        exchange_all(transport_, static_cast<double>(now_ns() - begin) / 1e9).front();
    for (const Entry& entry : entries)
      all_stop =
          all_stop && (options_.iterations > 0 ? round >= options_.iterations
                                               : should_stop(rule, entry.samples_us, elapsed_s));
    if (all_stop) return;
    std::ranges::shuffle(turns, random);
    for (Entry* entry : turns) {
      entry->samples_us.push_back(take_sample(entry->runnable, entry->row.inner_calls, Who::all));
      if (world_.num_groups > 1 && entry != &copy)
        entry->alone_us.push_back(
            take_sample(entry->runnable, entry->row.inner_calls, Who::first_group));
    }
  }
}

/// One call, its bytes by formula, by plan and as the transport counted them: on every rank the
/// same, if a plan does it. What the library moves for itself cannot be seen but for its formula.
void Meter::count_bytes(Entry& entry) {
  struct Bytes {
    double formula, plan, observed;
  };
  const double before = workspace_.backend().bytes_started();
  workspace_.run(entry.runnable, 1, false);
  const Bytes mine{entry.bytes_formula, entry.runnable.bytes_plan(),
                   workspace_.backend().bytes_started() - before};
  const std::vector<Bytes> all = exchange_all(transport_, mine);
  Row& row = entry.row;
  row.bytes_analytic = row.bytes_plan = -1;
  const auto fail = [&](const std::string& reason) {
    row.status = Status::failed;
    row.reason = reason;
  };
  const auto differ = [](double a, double b) { return std::abs(a - b) > 0.5; };
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto [formula, plan, observed] = all[rank];
    row.bytes_analytic = std::max(row.bytes_analytic, formula);
    row.bytes_observed = std::max(row.bytes_observed, observed);
    row.bytes_plan = std::max(row.bytes_plan, plan);
    if (plan < 0) continue;
    if (differ(plan, observed))
      fail(message("rank ", rank, " sent ", observed, " bytes, its plan says ", plan));
    else if (formula >= 0 && differ(plan, formula))
      fail(message("rank ", rank, " sends ", plan,
                   " bytes by its plan, the algorithm's formula "
                   "says ",
                   formula));
  }
  const bool pairs = row.point.pattern != Pattern::none && row.point.pattern != Pattern::ring;
  if (!pairs && row.bytes_plan < 0 && differ(row.bytes_analytic, row.bytes_observed))
    fail(message("the busiest rank moved ", row.bytes_observed, " bytes, the formula says ",
                 row.bytes_analytic));
}

/// One call on exact data; every element of the output is compared.
void Meter::check(Entry& entry) {
  if (options_.checks == 0 || entry.row.point.collective == Collective::barrier) return;
  prepare_exact(entry.row.point, entry.call, workspace_.backend());
  transport_.barrier();
  workspace_.set_checking(true);
  workspace_.run(entry.runnable, 1, false);
  workspace_.set_checking(false);
  const Verification mine = verify_exact(entry.row.point, entry.call, workspace_.backend());
  Row& row = entry.row;
  row.checked = true;
  row.num_wrong = static_cast<std::int64_t>(transport_.sum(static_cast<double>(mine.num_wrong)));
  const std::vector<std::string> failures = transport_.gather(mine.first_wrong);
  for (std::size_t rank = 0; rank < failures.size() && row.failure.empty(); ++rank)
    if (!failures[rank].empty()) row.failure = message("rank ", rank, ": ", failures[rank]);
  if (row.num_wrong == 0) return;
  row.status = Status::failed;
  row.reason = message("check failed: ", row.num_wrong, " wrong; ", row.failure);
}

void Meter::finish(Entry& entry) {
  Row& row = entry.row;
  row.time = summarize(entry.samples_us);
  if (row.point.pattern == Pattern::ping_pong)
    for (double* time : {&row.time.p50, &row.time.p10, &row.time.p95, &row.time.p99, &row.time.min,
                         &row.time.max, &row.time.mean})
      *time /= 2;
  if (!entry.alone_us.empty()) row.alone_us = median(entry.alone_us);
}

std::vector<Row> Meter::measure(const Series& series, const Series::Size& size,
                                const std::vector<Task>& tasks) {
  std::vector<Entry> entries;
  entries.reserve(tasks.size());
  for (const Task& task : tasks) entries.push_back(make_entry(series, size, task));
  double fastest_us = std::numeric_limits<double>::infinity();
  for (Entry& entry : entries) {
    if (options_.checks > 0 && entry.row.point.collective != Collective::barrier)
      prepare_exact(entry.row.point, entry.call, workspace_.backend());
    fastest_us = std::min(fastest_us, warm_up(entry));
  }
  // The same number for all: a sample's beginning and end weigh alike then.
  const int calls = calls_per_sample(fastest_us, entries);
  for (Entry& entry : entries) entry.row.inner_calls = calls;
  Entry copy;
  if (size.size_bytes > 0 && series.point.collective != Collective::barrier) {
    copy.runnable = workspace_.make_copy(size.size_bytes);
    copy.row.inner_calls = calls_per_sample(warm_up(copy), {});
  }
  sample(entries, copy);
  std::vector<Row> rows;
  for (Entry& entry : entries) {
    finish(entry);
    count_bytes(entry);
    if (!copy.samples_us.empty()) entry.row.copy_us = median(copy.samples_us);
    if (options_.waits)
      measure_waits(entry.row, entry.runnable, options_, world_, clocks_, workspace_, transport_);
    if (!options_.matmul.empty())
      measure_overlap(entry.row, entry.runnable, options_, workspace_, transport_);
    check(entry);
    rows.push_back(std::move(entry.row));
  }
  return rows;
}

}  // namespace shardmark::bench::collectives
