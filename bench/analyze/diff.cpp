#include "bench/analyze/diff.hpp"

#include "bench/analyze/diff_conclusion.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

namespace shardmark::bench {
namespace {

Account account_in(const RankRecording& rank, const std::optional<std::vector<Span>>& spans) {
  const Accounting accounting{rank.timeline, rank.classes};
  const auto of = [&](const std::optional<Span>& span) {
    return accounting.of({"", span}).value_or(Account{});
  };
  if (!spans) return of(std::nullopt);
  Account sum;
  for (const Span& span : *spans) {
    const Account part = of(span);
    for (const Category& category : all_categories) sum.*category.time += part.*category.time;
  }
  return sum;
}

/// Start of the first device work in the spans, on the first rank's clock; of each common rank,
/// counted from the earliest of them; 0 without any.
std::vector<std::int64_t> begins_of(const ComparedRun& run) {
  std::vector<std::optional<std::int64_t>> begins_ns;
  std::int64_t earliest_ns = std::numeric_limits<std::int64_t>::max();
  for (const std::size_t position : run.positions) {
    begins_ns.emplace_back();
    const std::vector<DeviceEvent>& events = run.recording.ranks[position].timeline.events;
    const auto first = std::ranges::find_if(events, [&](const DeviceEvent& event) {
      return contains(run.spans[position], event.time.start_ns);
    });
    if (first == events.end()) continue;
    begins_ns.back() =
        first->time.start_ns + (run.across ? run.across->clocks.offset_ns[position] : 0);
    earliest_ns = std::min(earliest_ns, *begins_ns.back());
  }
  std::vector<std::int64_t> after_ns;
  for (const std::optional<std::int64_t>& begin_ns : begins_ns)
    after_ns.push_back(begin_ns ? *begin_ns - earliest_ns : 0);
  return after_ns;
}

std::string ranks_of(const Recording& recording) {
  constexpr std::size_t num_shown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(num_shown, recording.ranks.size()); ++i)
    text += message(i == 0 ? "" : ", ", recording.ranks[i].timeline.rank);
  return recording.ranks.size() > num_shown ? text + ", ..." : text.empty() ? "none" : text;
}

/// Numbers of the ranks that both runs have, and where they are. Two single ranks are compared
/// whatever their numbers.
std::vector<int> find_common(ComparedRun& a, ComparedRun& b, std::vector<std::string>& warnings) {
  std::vector<int> common;
  std::string alone;
  std::map<int, std::size_t> in_b;
  for (std::size_t i = 0; i < b.recording.ranks.size(); ++i)
    in_b[b.recording.ranks[i].timeline.rank] = i;
  const auto note = [&](int rank, const char* run) {
    alone += message(alone.empty() ? "" : ", ", "rank ", rank, " only in ", run);
  };
  for (std::size_t i = 0; i < a.recording.ranks.size(); ++i) {
    const int rank = a.recording.ranks[i].timeline.rank;
    const auto other = in_b.find(rank);
    if (other == in_b.end()) {
      note(rank, "A");
      continue;
    }
    common.push_back(rank);
    a.positions.push_back(i);
    b.positions.push_back(other->second);
    in_b.erase(other);
  }
  for (const auto& [rank, position] : in_b) note(rank, "B");
  if (common.empty() && a.recording.ranks.size() == 1 && b.recording.ranks.size() == 1) {
    for (ComparedRun* run : {&a, &b}) run->positions.push_back(0);
    warnings.push_back(message("A is rank ", ranks_of(a.recording), " and B rank ",
                               ranks_of(b.recording), ": they are compared as one"));
    return {a.recording.ranks.front().timeline.rank};
  }
  if (!alone.empty()) warnings.push_back(alone + ": left out");
  return common;
}

std::size_t num_steps(const ComparedRun& run) {
  const std::size_t position = run.positions.front();
  return static_cast<std::size_t>(std::ranges::count_if(
      run.recording.ranks[position].timeline.steps,
      [&](const auto& step) { return contains(run.spans[position], step.time.start_ns); }));
}

template <class Row>
void sort_largest_first(std::vector<Row>& rows, Change Row::*time) {
  std::ranges::stable_sort(rows, [time](const Row& x, const Row& y) {
    return std::abs((x.*time).delta_ns()) > std::abs((y.*time).delta_ns());
  });
}

std::vector<CategoryChange> compare_categories(const ComparedRun& a, const ComparedRun& b,
                                               const std::vector<int>& common) {
  std::vector<CategoryChange> all, of_rank;
  const auto take = [&] {
    sort_largest_first(of_rank, &CategoryChange::time);
    std::ranges::move(of_rank, std::back_inserter(all));
    of_rank.clear();
  };
  const auto num = static_cast<std::int64_t>(common.size());
  for (const Category& category : all_categories) {
    Change sum;
    for (std::size_t i = 0; i < common.size(); ++i) {
      sum.a_ns += a.accounts[i].*category.time;
      sum.b_ns += b.accounts[i].*category.time;
    }
    of_rank.push_back({-1, category.name, {sum.a_ns / num, sum.b_ns / num}});
  }
  take();
  for (std::size_t i = 0; i < common.size(); ++i) {
    for (const Category& category : all_categories)
      of_rank.push_back(
          {common[i], category.name, {a.accounts[i].*category.time, b.accounts[i].*category.time}});
    take();
  }
  return all;
}

void add_kernels(const ComparedRun& run, std::int64_t KernelChange::*count,
                 std::int64_t Change::*total, std::map<std::string, KernelChange>& kernels) {
  for (const std::size_t position : run.positions) {
    const Timeline& timeline = run.recording.ranks[position].timeline;
    std::vector<KernelChange*> of_name(timeline.names.size());
    for (const DeviceEvent& event : timeline.events) {
      const std::int64_t length_ns = event.time.end_ns - event.time.start_ns;
      if (event.name >= of_name.size() || length_ns < 0 ||
          !contains(run.spans[position], event.time.start_ns))
        continue;
      KernelChange*& kernel = of_name[event.name];
      if (kernel == nullptr) kernel = &kernels[timeline.names[event.name]];
      ++(kernel->*count);
      kernel->total.*total += length_ns;
    }
  }
}

void add_collectives(const ComparedRun& run, std::int64_t CollectiveChange::*count,
                     std::int64_t Change::*time,
                     std::map<CollectiveKey, CollectiveChange>& collectives) {
  for (const std::size_t position : run.positions) {
    const RankRecording& rank = run.recording.ranks[position];
    for (const Communication& call : communications_of(rank)) {
      if (!contains(run.spans[position], call.time.start_ns)) continue;
      const std::string group =
          call.group == no_index ? std::string{} : label_of(rank.timeline.groups[call.group]);
      CollectiveChange& change = collectives[{call.kind, group, call.bytes}];
      ++(change.*count);
      change.total.*time += call.time.end_ns - call.time.start_ns;
    }
  }
  if (!run.across) return;
  for (const MatchedCollective& match : run.across->collectives) {
    Change& wait = collectives[{match.kind, match.group, match.bytes}].wait;
    for (std::size_t i = 0; i < match.ranks.size(); ++i)
      if (std::ranges::find(run.positions, static_cast<std::size_t>(match.ranks[i])) !=
          run.positions.end())
        wait.*time += match.wait_ns(i);
  }
}

/// Rows that differ, largest change first.
template <class Row, class Key>
std::vector<Row> differing(std::map<Key, Row>& rows) {
  std::vector<Row> result;
  for (auto& [key, row] : rows)
    if (row.a_count != row.b_count || row.total.delta_ns() != 0) result.push_back(std::move(row));
  sort_largest_first(result, &Row::total);
  return result;
}

}  // namespace

RunDiff diff_runs(const Recording& a_recording, const RankSpans& a_spans,
                  const Recording& b_recording, const RankSpans& b_spans) {
  RunDiff diff;
  ComparedRun a{a_recording, a_spans, analyse_across(a_recording, a_spans)};
  ComparedRun b{b_recording, b_spans, analyse_across(b_recording, b_spans)};
  const std::vector<int> common = find_common(a, b, diff.warnings);
  if (common.empty())
    throw InputError{message("--diff: the runs have no rank in common (A has ",
                             ranks_of(a_recording), ", B ", ranks_of(b_recording),
                             "); give runs of the same ranks, or one file each")};
  for (ComparedRun* run : {&a, &b}) {
    for (const std::size_t position : run->positions)
      run->accounts.push_back(account_in(run->recording.ranks[position], run->spans[position]));
    run->begins_ns = begins_of(*run);
  }
  if (num_steps(a) != num_steps(b))
    diff.warnings.push_back(message("A has ", num_steps(a), " steps and B ", num_steps(b),
                                    ": their totals are of different amounts of work"));
  diff.categories = compare_categories(a, b, common);
  std::map<std::string, KernelChange> kernels;
  add_kernels(a, &KernelChange::a_count, &Change::a_ns, kernels);
  add_kernels(b, &KernelChange::b_count, &Change::b_ns, kernels);
  for (auto& [name, kernel] : kernels) kernel.name = name;
  diff.kernels = differing(kernels);
  std::map<CollectiveKey, CollectiveChange> collectives;
  add_collectives(a, &CollectiveChange::a_count, &Change::a_ns, collectives);
  add_collectives(b, &CollectiveChange::b_count, &Change::b_ns, collectives);
  for (auto& [key, collective] : collectives)
    std::tie(collective.kind, collective.group, collective.bytes) = key;
  diff.collectives = differing(collectives);
  diff.conclusion = conclude(a, b, common, diff.categories);
  return diff;
}

}  // namespace shardmark::bench
