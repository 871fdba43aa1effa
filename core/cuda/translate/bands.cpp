// A run of evenly spaced queries sees of a run of keys with the same spacing a band: with i and j
// their rows and `gap` the distance of their first places, query and key are gap + (i - j) stride
// apart, and what is seen are distances from 0 (causal) or 1 - window up to window - 1. So keys i +
// low <= j <= i + high are seen, for low and high that do not depend on i. Queries that see nothing
// and keys that nobody sees are cut off; packed sequences are cut apart first.

#include "core/cuda/translate/bands.hpp"

#include <algorithm>

namespace shardmark::cuda {
namespace {

std::int64_t floor_of(std::int64_t a, std::int64_t b) {
  return a >= 0 ? a / b : -((b - 1 - a) / b);
}
std::int64_t ceil_of(std::int64_t a, std::int64_t b) { return -floor_of(-a, b); }

/// A run of places and the row of its first.
struct Rows {
  std::int64_t first_row;
  Places::Run run;
};

/// Those at places [first, last).
Rows between(const Rows& rows, std::int64_t first, std::int64_t last) {
  const auto below = [&](std::int64_t place) {
    return std::clamp<std::int64_t>(ceil_of(place - rows.run.first, rows.run.stride), 0,
                                    rows.run.count);
  };
  const std::int64_t from = below(first), to = below(last);
  return {rows.first_row + from, {rows.run.place(from), to - from, rows.run.stride}};
}

/// Offsets of the keys that a query sees from its own row.
struct Offsets {
  std::int64_t low, high;
};

Offsets offsets_of(const Visibility& visibility, const Places::Run& q, const Places::Run& k,
                   std::int64_t stride) {
  const std::int64_t gap = q.first - k.first, window = visibility.window;
  Offsets offsets{-q.count, k.count};
  if (visibility.causal)
    offsets.high = floor_of(gap, stride);
  else if (window > 0)
    offsets.high = floor_of(gap + window - 1, stride);
  if (window > 0) offsets.low = ceil_of(gap - window + 1, stride);
  return {std::max(offsets.low, -q.count), std::min(offsets.high, k.count)};
}

/// Whether all of the queries see all of the keys (true), none any (false), or neither (nothing).
std::optional<bool> all_or_none(const Visibility& visibility, const Places::Run& q,
                                const Places::Run& k) {
  const std::int64_t nearest = q.first - k.place(k.count - 1);
  const std::int64_t farthest = q.place(q.count - 1) - k.first;
  const std::int64_t window = visibility.window;
  const bool limited = window > 0;
  const std::int64_t least = visibility.causal ? 0 : 1 - window;
  const bool bounded_below = visibility.causal || limited;
  if ((!bounded_below || nearest >= least) && (!limited || farthest < window)) return true;
  if ((bounded_below && farthest < least) || (limited && nearest >= window)) return false;
  return std::nullopt;
}

std::optional<Band> band_of(const Offsets& offsets, const Rows& q, const Rows& k) {
  const auto [low, high] = offsets;
  const std::int64_t first_query = std::max<std::int64_t>(0, -high);
  const std::int64_t last_query = std::min(q.run.count - 1, k.run.count - 1 - low);
  if (low > high || first_query > last_query) return std::nullopt;
  const std::int64_t first_key = std::max<std::int64_t>(0, first_query + low);
  const std::int64_t last_key = std::min(k.run.count - 1, last_query + high);
  Band band{q.first_row + first_query, last_query - first_query + 1, k.first_row + first_key,
            last_key - first_key + 1};
  const std::int64_t shift = first_query - first_key;
  if (high + shift < band.num_keys - 1) band.right_bound = high + shift;
  if (low + shift > 1 - band.num_queries) band.left_bound = 1 - (low + shift);
  return band;
}

/// Appends the band of two runs; false if there is none that fits.
bool append_band(const Visibility& visibility, const Rows& q, const Rows& k,
                 std::vector<Band>& bands) {
  if (q.run.count == 0 || k.run.count == 0) return true;
  std::optional<Band> band;
  if (q.run.stride == k.run.stride || q.run.count == 1 || k.run.count == 1) {
    const std::int64_t stride = q.run.count == 1 ? k.run.stride : q.run.stride;
    band = band_of(offsets_of(visibility, q.run, k.run, stride), q, k);
  } else {
    const std::optional<bool> sees = all_or_none(visibility, q.run, k.run);
    if (!sees) return false;
    if (*sees) band = Band{q.first_row, q.run.count, k.first_row, k.run.count};
  }
  if (band) bands.push_back(*band);
  return true;
}

}  // namespace

std::optional<std::vector<Band>> bands_of(const AttentionShape& shape) {
  const Visibility visibility = shape.visibility();
  const Places queries = shape.query_places(), keys = shape.key_places();
  const std::array<Rows, 2> q_runs{Rows{0, queries.runs[0]},
                                   Rows{queries.runs[0].count, queries.runs[1]}};
  const std::array<Rows, 2> k_runs{Rows{0, keys.runs[0]}, Rows{keys.runs[0].count, keys.runs[1]}};
  std::vector<std::int64_t> starts{visibility.starts.begin(), visibility.starts.end()};
  if (starts.empty()) starts.push_back(0);
  std::vector<Band> bands;
  for (std::size_t i = 0; i < starts.size(); ++i)
    for (const Rows& q : q_runs)
      for (const Rows& k : k_runs) {
        const auto sequence = [&](const Rows& rows) {
          if (rows.run.count == 0) return rows;
          const std::int64_t end = rows.run.place(rows.run.count);
          return between(rows, starts[i], i + 1 < starts.size() ? starts[i + 1] : end);
        };
        if (!append_band(visibility, sequence(q), sequence(k), bands)) return std::nullopt;
      }
  return bands;
}

}  // namespace shardmark::cuda
