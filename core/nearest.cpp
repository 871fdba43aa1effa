#include "core/nearest.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace shardmark {
namespace {

/// Levenshtein distance.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string_view nearest(std::string_view wrong, std::span<const std::string_view> names) {
  std::string_view best;
  std::size_t fewest = 0;
  for (const std::string_view name : names) {
    const std::size_t count = edits(wrong, name);
    if (3 * count > std::max(wrong.size(), name.size())) continue;
    if (!best.empty() && count >= fewest) continue;
    best = name;
    fewest = count;
  }
  return best;
}

std::string did_you_mean(std::string_view wrong, std::span<const std::string_view> names) {
  const std::string_view name = nearest(wrong, names);
  return name.empty() ? std::string{} : "; did you mean " + std::string{name} + '?';
}

}  // namespace shardmark
