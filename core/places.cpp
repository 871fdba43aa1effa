#include "core/places.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <limits>

namespace shardmark {
namespace {

/// Rows of `run` at places below `place`.
std::int64_t rows_below(const Places::Run& run, std::int64_t place) {
  if (place <= run.first) return 0;
  return std::min(run.count, (place - run.first + run.stride - 1) / run.stride);
}

/// The places [first, last) that a query sees.
KeyRange visible_places(const Visibility& visibility, std::int64_t place) {
  KeyRange range{0, std::numeric_limits<std::int64_t>::max()};
  if (!visibility.starts.empty()) {
    const auto next = std::ranges::upper_bound(visibility.starts, place);
    if (next != visibility.starts.end()) range.last = *next;
    range.first = *(next - 1);
  }
  if (visibility.causal) range.last = std::min(range.last, place + 1);
  if (visibility.window > 0) {
    range.first = std::max(range.first, place - visibility.window + 1);
    if (!visibility.causal) range.last = std::min(range.last, place + visibility.window);
  }
  return range;
}

/// True if every query of `queries` sees every key of `keys`, which is quickly seen only without
/// windows and packing.
bool all_visible(const Visibility& visibility, const Places::Run& queries,
                 const Places::Run& keys) {
  if (visibility.window > 0 || !visibility.starts.empty()) return false;
  return !visibility.causal || keys.place(keys.count - 1) <= queries.first;
}

}  // namespace

std::int64_t Places::operator[](std::int64_t row) const {
  return row < runs[0].count ? runs[0].place(row) : runs[1].place(row - runs[0].count);
}

Places Places::slice(std::int64_t first, std::int64_t count) const {
  SHARDMARK_CHECK(first >= 0 && count >= 0 && first + count <= this->count(), "rows ", first, " + ",
                  count, " of ", this->count());
  Places part;
  std::size_t used = 0;
  for (const Run& run : runs) {
    const std::int64_t from = std::clamp<std::int64_t>(first, 0, run.count);
    const std::int64_t to = std::clamp<std::int64_t>(first + count, 0, run.count);
    if (to > from) part.runs[used++] = {run.place(from), to - from, run.stride};
    first -= run.count;
  }
  return part;
}

KeyRange visible_keys(const Visibility& visibility, std::int64_t place, const Places::Run& run) {
  const KeyRange places = visible_places(visibility, place);
  const std::int64_t first = rows_below(run, places.first);
  return {first, std::max(first, rows_below(run, places.last))};
}

double visible_pairs(const Visibility& visibility, const Places& queries, const Places& keys) {
  double pairs = 0;
  for (const Places::Run& q : queries.runs)
    for (const Places::Run& k : keys.runs) {
      if (q.count == 0 || k.count == 0) continue;
      if (all_visible(visibility, q, k)) {
        pairs += static_cast<double>(q.count) * static_cast<double>(k.count);
        continue;
      }
      for (std::int64_t row = 0; row < q.count; ++row)
        pairs += static_cast<double>(visible_keys(visibility, q.place(row), k).count());
    }
  return pairs;
}

}  // namespace shardmark
