#include "bench/analyze/diff.hpp"

#include "bench/analyze/across.hpp"
#include "core/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace shardmark::bench {
namespace {

constexpr std::int64_t notable_part = 100;  ///< changes below a hundredth of the window are noise

struct Category {
  const char *name, *words;
  std::int64_t Account::*time;
};
constexpr std::array<Category, 6> all_categories{
    {{"span", "window", &Account::span_ns},
     {"compute", "compute", &Account::compute_ns},
     {"exposed_comm", "exposed communication", &Account::exposed_comm_ns},
     {"overlapped", "overlapped communication", &Account::overlapped_ns},
     {"exposed_copy", "exposed copies", &Account::exposed_copy_ns},
     {"idle", "idle time", &Account::idle_ns}}};

using CollectiveKey = std::tuple<std::string, std::string, std::int64_t>;  ///< kind, group, bytes

/// One of the two runs, with what is known of the ranks that both have.
struct Run {
  const Recording& recording;
  const RankSpans& spans;
  std::optional<AcrossRanks> across{};
  std::vector<std::size_t> positions{};  ///< of the common ranks
  std::vector<Account> accounts{};       ///< of the common ranks
};

Account account_in(const RankRecording& rank, const std::optional<std::vector<Span>>& spans) {
  const auto of = [&](const std::optional<Span>& span) {
    return account(rank.timeline, rank.classes, {"", span}).value_or(Account{});
  };
  if (!spans) return of(std::nullopt);
  Account sum;
  for (const Span& span : *spans) {
    const Account part = of(span);
    for (const Category& category : all_categories) sum.*category.time += part.*category.time;
  }
  return sum;
}

/// Numbers of the ranks that both runs have; fills in where they are and what they did.
std::vector<int> find_common(Run& a, Run& b, std::vector<std::string>& warnings) {
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
  if (!alone.empty()) warnings.push_back(alone + ": left out");
  for (Run* run : {&a, &b})
    for (const std::size_t position : run->positions)
      run->accounts.push_back(account_in(run->recording.ranks[position], run->spans[position]));
  return common;
}

std::size_t num_steps(const Run& run) {
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

std::vector<CategoryChange> compare_categories(const Run& a, const Run& b,
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

void add_kernels(const Run& run, std::int64_t KernelChange::*count, std::int64_t Change::*total,
                 std::map<std::string, KernelChange>& kernels) {
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

void add_collectives(const Run& run, std::int64_t CollectiveChange::*count,
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

std::string milliseconds(std::int64_t ns) {
  return fmt::format("{:.3f} ms", static_cast<double>(std::abs(ns)) / 1e6);
}
std::string longer(std::int64_t delta_ns) {
  return milliseconds(delta_ns) + (delta_ns < 0 ? " shorter" : " longer");
}

/// What the others waited for one rank, by collective.
std::map<CollectiveKey, Change> waits_for(const Run& a, const Run& b, std::size_t common_rank) {
  std::map<CollectiveKey, Change> waits;
  for (const auto& [run, time] : {std::pair{&a, &Change::a_ns}, std::pair{&b, &Change::b_ns}})
    for (const MatchedCollective& match : run->across->collectives)
      if (match.last_arriver == static_cast<int>(run->positions[common_rank]))
        for (std::size_t i = 0; i < match.ranks.size(); ++i)
          waits[{match.kind, match.group, match.bytes}].*time += match.wait_ns(i);
  return waits;
}

std::string describe(const CollectiveKey& key) {
  const auto& [kind, group, bytes] = key;
  return message(kind, group.empty() ? "" : " of group ", group,
                 bytes < 0 ? std::string{} : message(" with ", bytes, " bytes"));
}

/// Why the rank is late, or early: its own compute, or that its device had nothing to do.
std::string cause_of(const Account& a, const Account& b, std::int64_t sign) {
  const std::int64_t compute = sign * (b.compute_ns - a.compute_ns);
  const std::int64_t idle = sign * (b.idle_ns - a.idle_ns);
  if (compute <= 0 && idle <= 0) return {};
  if (compute >= idle) return message("; its compute takes ", longer(sign * compute));
  return message("; its device idles ", longer(sign * idle),
                 ", so look at launches, input and what else runs there");
}

/// The rank for which the others wait longer in B, or less; empty if none stands out.
std::string conclude_from_waits(const Run& a, const Run& b, const std::vector<int>& common) {
  if (!a.across || !b.across) return {};
  const auto delta_of = [&](std::size_t i) {
    return b.across->ranks[b.positions[i]].caused_wait_ns -
           a.across->ranks[a.positions[i]].caused_wait_ns;
  };
  std::size_t most = 0;
  std::int64_t window_ns = 0;
  for (std::size_t i = 0; i < common.size(); ++i) {
    if (std::abs(delta_of(i)) > std::abs(delta_of(most))) most = i;
    window_ns = std::max({window_ns, a.accounts[i].span_ns, b.accounts[i].span_ns});
  }
  const std::int64_t delta = delta_of(most);
  if (std::abs(delta) * notable_part <= window_ns) return {};
  const std::int64_t sign = delta < 0 ? -1 : 1;
  const auto waits = waits_for(a, b, most);
  const auto largest = std::ranges::max_element(
      waits, {}, [&](const auto& wait) { return sign * wait.second.delta_ns(); });
  const std::int64_t a_ns = a.across->ranks[a.positions[most]].caused_wait_ns;
  return message("rank ", common[most], " is ", sign > 0 ? "slower" : "faster",
                 " in B: the other ranks wait ", longer(delta), " for it (A ", milliseconds(a_ns),
                 ", B ", milliseconds(a_ns + delta), "), most of it in ", describe(largest->first),
                 " (", longer(largest->second.delta_ns()), ')',
                 cause_of(a.accounts[most], b.accounts[most], sign));
}

/// Where nothing could be matched: the rank whose compute grew most beyond the others'.
std::string conclude_from_compute(const Run& a, const Run& b, const std::vector<int>& common) {
  const auto is_matched = [](const Run& run) {
    return run.across && std::ranges::any_of(run.across->collectives, &MatchedCollective::complete);
  };
  if (common.size() < 2 || (is_matched(a) && is_matched(b))) return {};
  std::size_t most = 0;
  std::int64_t sum = 0;
  const auto delta_of = [&](std::size_t i) {
    return b.accounts[i].compute_ns - a.accounts[i].compute_ns;
  };
  for (std::size_t i = 0; i < common.size(); ++i) {
    sum += delta_of(i);
    if (delta_of(i) > delta_of(most)) most = i;
  }
  const std::int64_t others = (sum - delta_of(most)) / static_cast<std::int64_t>(common.size() - 1);
  if ((delta_of(most) - others) * notable_part <= a.accounts[most].span_ns) return {};
  return message("rank ", common[most], " is slower in B: it computes ", longer(delta_of(most)),
                 ", the others on average ", longer(others),
                 "; no collective could be matched in both runs, so who waits for it is not known");
}

/// The change of the window, and of what it is made of.
std::string conclude_from_categories(const std::vector<CategoryChange>& categories) {
  const CategoryChange *span = nullptr, *most = nullptr;
  for (const CategoryChange& change : categories) {
    if (change.rank >= 0) continue;
    if (change.category == "span")
      span = &change;
    else if (change.category != "overlapped" && most == nullptr)
      most = &change;
  }
  const Change window = span->time;
  const auto is_notable = [&](const Change& change) {
    return std::abs(change.delta_ns()) * notable_part > std::max(window.a_ns, window.b_ns);
  };
  if (!is_notable(window) && !is_notable(most->time))
    return "nothing changes by more than 1 % of the window";
  const auto* const words = std::ranges::find(
      all_categories, most->category, [](const Category& c) { return std::string{c.name}; });
  return message("the window of B is ", longer(window.delta_ns()), " (A ",
                 milliseconds(window.a_ns), ", B ", milliseconds(window.b_ns),
                 ", mean over ranks); what changes most is ", words->words, ", ",
                 longer(most->time.delta_ns()));
}

}  // namespace

RunDiff diff_runs(const Recording& a_recording, const RankSpans& a_spans,
                  const Recording& b_recording, const RankSpans& b_spans) {
  RunDiff diff;
  Run a{a_recording, a_spans, analyse_across(a_recording, a_spans)};
  Run b{b_recording, b_spans, analyse_across(b_recording, b_spans)};
  const std::vector<int> common = find_common(a, b, diff.warnings);
  if (common.empty()) {
    diff.conclusion = "the runs have no rank in common";
    return diff;
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
  diff.conclusion = conclude_from_waits(a, b, common);
  if (diff.conclusion.empty()) diff.conclusion = conclude_from_compute(a, b, common);
  if (diff.conclusion.empty()) diff.conclusion = conclude_from_categories(diff.categories);
  return diff;
}

}  // namespace shardmark::bench
