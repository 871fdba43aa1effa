#include "bench/collectives/tune.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <ostream>
#include <tuple>
#include <vector>

namespace shardmark::bench::collectives {
namespace {

constexpr double worth_changing = 0.99;

/// A way of calling that has a fastest algorithm of its own.
using Setting = std::tuple<DType, Reduction, int, bool>;
/// By algorithm; of several rows their sum, since only ratios matter.
using Times = std::map<std::string, double>;

/// Worst ratio to the fastest over the settings, of each algorithm that all of them have.
std::map<std::string, double> worst_ratios(const std::map<Setting, Times>& settings) {
  std::map<std::string, double> worst;
  for (const auto& [algorithm, time_us] : settings.begin()->second) worst[algorithm] = 1;
  for (const auto& [setting, times] : settings) {
    double fastest = times.begin()->second;
    for (const auto& [algorithm, time_us] : times) fastest = std::min(fastest, time_us);
    for (auto entry = worst.begin(); entry != worst.end();) {
      const auto time = times.find(entry->first);
      if (time == times.end()) {
        entry = worst.erase(entry);
      } else {
        entry->second = std::max(entry->second, time->second / fastest);
        ++entry;
      }
    }
  }
  return worst;
}

std::vector<ChoiceTable::Row> rows_of(
    Collective collective, int group_size,
    const std::map<std::int64_t, std::map<Setting, Times>>& sizes) {
  std::vector<ChoiceTable::Row> chosen;
  std::int64_t previous_bytes = 0;
  for (const auto& [bytes, settings] : sizes) {
    const std::map<std::string, double> worst = worst_ratios(settings);
    if (worst.empty()) continue;
    auto best = std::ranges::min_element(worst, {}, [](const auto& entry) { return entry.second; });
    if (!chosen.empty())
      if (const auto same = worst.find(chosen.back().algorithm);
          same != worst.end() && best->second > worth_changing * same->second)
        best = same;
    if (chosen.empty() || chosen.back().algorithm != best->first) {
      std::int64_t first = 0;
      if (!chosen.empty()) {
        first = static_cast<std::int64_t>(
            std::sqrt(static_cast<double>(previous_bytes) * static_cast<double>(bytes)));
        first = std::clamp(first, previous_bytes + 1, bytes);
        chosen.back().max_bytes = first - 1;
      }
      chosen.push_back({collective, group_size, first, -1, best->first});
    }
    previous_bytes = bytes;
  }
  return chosen;
}

}  // namespace

ChoiceTable make_choices(std::span<const Row> rows) {
  std::map<std::pair<Collective, int>, std::map<std::int64_t, std::map<Setting, Times>>> all;
  std::map<std::string, bool> algorithms;
  for (const Row& row : rows) {
    const Point& point = row.point;
    if (row.status != Status::ok || point.algorithm == "auto" || row.time.p50 <= 0) continue;
    // A plan from a file cannot be named in a table.
    if (point.algorithm.find_first_of("./") != std::string::npos) continue;
    algorithms[point.algorithm] = true;
    all[{point.collective, point.group_size}][point.size_bytes][{
        point.dtype, point.reduction, point.root, point.in_place}][point.algorithm] += row.time.p50;
  }
  if (algorithms.size() < 2)
    throw InputError{
        "--tune compares algorithms, but fewer than two were measured; give --algorithm all"};
  std::vector<ChoiceTable::Row> chosen;
  for (const auto& [key, sizes] : all)
    for (ChoiceTable::Row& row : rows_of(key.first, key.second, sizes))
      chosen.push_back(std::move(row));
  return ChoiceTable{std::move(chosen)};
}

ChoiceTable write_choices(const std::string& path, std::span<const Row> rows, std::ostream& out) {
  ChoiceTable table = make_choices(rows);
  std::ofstream file{path};
  file << "# fastest algorithm by size, measured by shardmark-collectives --tune\n"
       << to_text(table) << std::flush;
  if (!file) throw InputError{message("cannot write ", path, ": ", std::strerror(errno))};
  for (const ChoiceTable::Row& row : table.rows()) {
    out << "# choice: " << name_of(row.collective) << ", " << row.group_size << " ranks, from "
        << row.min_bytes << " B";
    if (row.max_bytes >= 0) out << " to " << row.max_bytes << " B";
    out << ": " << row.algorithm << '\n';
  }
  out << "# written to " << path << '\n' << std::flush;
  return table;
}

}  // namespace shardmark::bench::collectives
