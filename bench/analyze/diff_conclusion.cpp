#include "bench/analyze/diff_conclusion.hpp"

#include "bench/analyze/time_text.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace shardmark::bench {
namespace {

constexpr std::int64_t notable_part = 100;  ///< changes below a hundredth of the window are noise

std::string time_of(std::int64_t ns) { return time_text(std::abs(ns)); }
std::string longer(std::int64_t delta_ns) {
  return time_of(delta_ns) + (delta_ns < 0 ? " shorter" : " longer");
}

/// What the others waited for one rank, by collective.
std::map<CollectiveKey, Change> waits_for(const ComparedRun& a, const ComparedRun& b,
                                          std::size_t common_rank) {
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

/// Why the rank is late, or early: what of its own changed most that way.
std::string cause_of(const ComparedRun& a, const ComparedRun& b, std::size_t common_rank,
                     std::int64_t sign) {
  const Account &before = a.accounts[common_rank], &after = b.accounts[common_rank];
  const std::int64_t compute = sign * (after.compute_ns - before.compute_ns);
  const std::int64_t idle = sign * (after.idle_ns - before.idle_ns);
  const std::int64_t begin = sign * (b.begins_ns[common_rank] - a.begins_ns[common_rank]);
  const std::int64_t most = std::max({compute, idle, begin});
  if (most <= 0) return {};
  if (most == compute) return message("; its compute takes ", longer(sign * compute));
  if (most == idle)
    return message("; its device idles ", longer(sign * idle),
                   ": look at launches, input and what else runs there");
  return message("; its device begins ", time_of(begin), sign > 0 ? " later" : " earlier",
                 " than the first one does: look at the host and what else runs there");
}

/// The rank for which the others wait longer in B, or less; empty if none stands out.
std::string conclude_from_waits(const ComparedRun& a, const ComparedRun& b,
                                const std::vector<int>& common) {
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
                 " in B: the other ranks wait ", longer(delta), " for it (A ", time_of(a_ns),
                 ", B ", time_of(a_ns + delta), "), most of it in ", describe(largest->first), " (",
                 longer(largest->second.delta_ns()), ')', cause_of(a, b, most, sign));
}

/// Where nothing could be matched: the rank whose compute grew most beyond the others'.
std::string conclude_from_compute(const ComparedRun& a, const ComparedRun& b,
                                  const std::vector<int>& common) {
  const auto is_matched = [](const ComparedRun& run) {
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
  return message("the window of B is ", longer(window.delta_ns()), " (A ", time_of(window.a_ns),
                 ", B ", time_of(window.b_ns), ", mean over ranks); what changes most is ",
                 words->words, ", ", longer(most->time.delta_ns()));
}

}  // namespace

std::string conclude(const ComparedRun& a, const ComparedRun& b, const std::vector<int>& common,
                     const std::vector<CategoryChange>& categories) {
  std::string conclusion = conclude_from_waits(a, b, common);
  if (conclusion.empty()) conclusion = conclude_from_compute(a, b, common);
  return conclusion.empty() ? conclude_from_categories(categories) : conclusion;
}

}  // namespace shardmark::bench
