#include "core/places.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <limits>

namespace shardmark {
namespace {

constexpr std::int64_t far_away = std::numeric_limits<std::int64_t>::max() / 2;

/// ceil((place - run.first) / run.stride): the rows of an endless run that are below `place`.
std::int64_t steps_to(const Places::Run& run, std::int64_t place) {
  const std::int64_t gap = place - run.first;
  return gap > 0 ? (gap + run.stride - 1) / run.stride : -(-gap / run.stride);
}
/// Rows of `run` at places below `place`.
std::int64_t rows_below(const Places::Run& run, std::int64_t place) {
  return std::clamp<std::int64_t>(steps_to(run, place), 0, run.count);
}

/// The places [first, last) relative to its own that a query sees within its packed sequence.
KeyRange around(const Visibility& visibility) {
  const std::int64_t reach = visibility.window > 0 ? visibility.window : far_away;
  return {1 - reach, visibility.causal ? 1 : reach};
}

/// The part of `run` at places [first, last).
Places::Run between(const Places::Run& run, std::int64_t first, std::int64_t last) {
  const std::int64_t row = rows_below(run, first);
  return {run.place(row), rows_below(run, last) - row, run.stride};
}

/// Sum of clamp(first + i * step, 0, limit) over i in [0, count).
double sum_clamped(std::int64_t first, std::int64_t step, std::int64_t count, std::int64_t limit) {
  const auto terms_below = [&](std::int64_t value) {
    if (value <= first) return std::int64_t{0};
    return step == 0 ? count : std::min(count, (value - first + step - 1) / step);
  };
  const std::int64_t from = terms_below(0), to = terms_below(limit);
  const double mean = static_cast<double>(first) +
                      static_cast<double>(from + to - 1) * static_cast<double>(step) / 2;
  return static_cast<double>(to - from) * mean +
         static_cast<double>(count - to) * static_cast<double>(limit);
}

/// Pairs of a query and a key that stands at most `distance` - 1 places after it.
double pairs_below(const Places::Run& queries, const Places::Run& keys, std::int64_t distance) {
  if (queries.stride % keys.stride == 0)
    return sum_clamped(steps_to(keys, queries.first + distance), queries.stride / keys.stride,
                       queries.count, keys.count);
  double pairs = 0;
  for (std::int64_t row = 0; row < queries.count; ++row)
    pairs += static_cast<double>(rows_below(keys, queries.place(row) + distance));
  return pairs;
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

std::int64_t start_of(std::span<const std::int64_t> starts, std::int64_t place) {
  return starts.empty() ? 0 : *(std::ranges::upper_bound(starts, place) - 1);
}

KeyRange visible_keys(const Visibility& visibility, std::int64_t place, const Places::Run& run) {
  const KeyRange reach = around(visibility);
  KeyRange places{place + reach.first, place + reach.last};
  if (!visibility.starts.empty()) {
    const auto next = std::ranges::upper_bound(visibility.starts, place);
    if (next != visibility.starts.end()) places.last = std::min(places.last, *next);
    places.first = std::max(places.first, *(next - 1));
  }
  return {rows_below(run, places.first), rows_below(run, places.last)};
}

double visible_pairs(const Visibility& visibility, const Places& queries, const Places& keys) {
  const KeyRange reach = around(visibility);
  const auto pairs_within = [&](std::int64_t first, std::int64_t last) {
    double pairs = 0;
    for (const Places::Run& q : queries.runs)
      for (const Places::Run& k : keys.runs) {
        const Places::Run these = between(q, first, last), those = between(k, first, last);
        pairs += pairs_below(these, those, reach.last) - pairs_below(these, those, reach.first);
      }
    return pairs;
  };
  const std::span<const std::int64_t> starts = visibility.starts;
  if (starts.empty()) return pairs_within(0, far_away);
  double pairs = 0;
  for (std::size_t i = 0; i < starts.size(); ++i)
    pairs += pairs_within(starts[i], i + 1 < starts.size() ? starts[i + 1] : far_away);
  return pairs;
}

}  // namespace shardmark
