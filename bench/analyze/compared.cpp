#include "bench/analyze/compared.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace shardmark::bench::analyze {
namespace {

std::set<std::string> common_steps(const std::vector<RankReport>& ranks) {
  std::map<std::string, std::size_t> num_ranks_with;
  std::size_t num_ranks = 0;
  for (const RankReport& rank : ranks) {
    if (!rank.total) continue;
    ++num_ranks;
    std::set<std::string> own;  // a name may come twice
    for (const Account& step : rank.steps) own.insert(step.window.name);
    for (const std::string& name : own) ++num_ranks_with[name];
  }
  std::set<std::string> common;
  for (const auto& [name, num] : num_ranks_with)
    if (num == num_ranks) common.insert(name);
  return common;
}

}  // namespace

double ComparedCompute::ratio() const {
  if (compute_us.size() < 2) return 0;
  const auto [fastest, slowest] = std::ranges::minmax(compute_us);
  return fastest > 0 ? slowest / fastest : 0;
}

ComparedCompute compare_compute(const std::vector<RankReport>& ranks) {
  const std::set<std::string> common = common_steps(ranks);
  ComparedCompute compared;
  compared.num_steps = static_cast<std::int64_t>(common.size());
  for (const RankReport& rank : ranks) {
    if (!rank.total) continue;
    std::int64_t compute_ns = 0, window_ns = 0;
    const auto add = [&](const Account& account) {
      compute_ns += account.compute_ns;
      window_ns += account.span_ns;
    };
    for (const Account& step : rank.steps)
      if (common.contains(step.window.name)) add(step);
    if (common.empty()) add(*rank.total);
    compared.compute_us.push_back(static_cast<double>(compute_ns) / 1e3);
    compared.numbers.push_back(rank.rank);
    compared.window_us = std::max(compared.window_us, static_cast<double>(window_ns) / 1e3);
  }
  return compared;
}

}  // namespace shardmark::bench::analyze
