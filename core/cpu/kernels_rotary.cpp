#include "core/cpu/kernels_internal.hpp"
#include "core/cpu/vector_math.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace shardmark::kernels {
namespace {

SHARDMARK_CLONES void rotate_rows(const Rope& op, const float* table, std::int64_t first,
                                  std::int64_t last) {
  const std::int64_t half = op.head_dim / 2;
  const float direction = op.inverse ? -1.0F : 1.0F;
  for (std::int64_t r = first; r < last; ++r) {
    const Row cosines = row_of(const_cast<float*>(table) + r % op.seq * op.head_dim);
    const Row sines = cosines.from(half);
    for (std::int64_t head = 0; head < op.num_heads; ++head) {
      const Row lower = row_of(op.x, r).from(head * op.head_dim);
      const Row upper = lower.from(half);
      for_vectors(half, [&](std::int64_t c, std::int64_t n) SHARDMARK_INLINE {
        const Floats a = lower.load(c, n);
        const Floats b = upper.load(c, n);
        const Floats cosine = cosines.load(c, n);
        const Floats sine = sines.load(c, n) * direction;
        lower.store(c, n, a * cosine - b * sine);
        upper.store(c, n, b * cosine + a * sine);
      });
    }
  }
}

}  // namespace

const float* RotaryTables::get(const Rope& op) {
  const Places places = op.places.count() > 0 ? op.places : Places::all(op.seq);
  for (const Table& table : tables_)
    if (table.places == places && std::ranges::equal(table.starts, op.starts) &&
        table.head_dim == op.head_dim && table.theta == op.theta)
      return table.rows.data();
  const std::int64_t half = op.head_dim / 2;
  std::vector<float> rows(static_cast<std::size_t>(op.seq * op.head_dim));
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency =
        std::pow(static_cast<double>(op.theta),
                 -2.0 * static_cast<double>(i) / static_cast<double>(op.head_dim));
    for (std::int64_t t = 0; t < op.seq; ++t) {
      const std::int64_t place = places[t] - start_of(op.starts, places[t]);
      const double angle = static_cast<double>(place) * frequency;
      rows[static_cast<std::size_t>(t * op.head_dim + i)] = static_cast<float>(std::cos(angle));
      rows[static_cast<std::size_t>(t * op.head_dim + half + i)] =
          static_cast<float>(std::sin(angle));
    }
  }
  tables_.push_back(
      {places, {op.starts.begin(), op.starts.end()}, op.head_dim, op.theta, std::move(rows)});
  return tables_.back().rows.data();
}

const char* run(const Rope& op, const Context& context) {
  const float* const table = context.rotary.get(op);
  for_rows(context, op.x.rows(), 2 * op.x.cols() * size_of(op.x.dtype),
           [&](std::int64_t first, std::int64_t last) { rotate_rows(op, table, first, last); });
  return op.inverse ? "shardmark_rope_inverse" : "shardmark_rope";
}

}  // namespace shardmark::kernels
