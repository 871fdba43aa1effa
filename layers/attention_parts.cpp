#include "layers/attention_parts.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <limits>

namespace shardmark {
namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a >= 0 ? a / b : -((b - 1 - a) / b);
}

/// Of one packed sequence. A query at q sees a key at k if q - k lies in a range; over two runs of
/// one stride, q - k takes every stride-th value between the extremes.
bool runs_see(const Visibility& visibility, const Places::Run& queries, const Places::Run& keys) {
  if (queries.count == 0 || keys.count == 0) return false;
  SHARDMARK_CHECK(queries.stride == keys.stride, "queries ", queries.stride,
                  " places apart and keys ", keys.stride, " apart");
  constexpr std::int64_t far = std::numeric_limits<std::int64_t>::max() / 4;
  const std::int64_t reach = visibility.window > 0 ? visibility.window - 1 : far;
  const std::int64_t shift = queries.first - keys.first, stride = queries.stride;
  const std::int64_t lowest = visibility.causal ? 0 : -reach;
  const std::int64_t first = std::max(1 - keys.count, -floor_div(shift - lowest, stride));
  const std::int64_t last = std::min(queries.count - 1, floor_div(reach - shift, stride));
  return first <= last;
}

/// The part of a run that lies in the packed sequence which holds `place`.
Places::Run part_in_sequence(const Visibility& visibility, std::int64_t place,
                             const Places::Run& run) {
  const KeyRange rows = visible_keys({.causal = false, .starts = visibility.starts}, place, run);
  return {run.place(rows.first), rows.count(), run.stride};
}

}  // namespace

bool sees_any(const Visibility& visibility, const Places& queries, const Places& keys) {
  for (const Places::Run& q : queries.runs)
    for (const Places::Run& k : keys.runs) {
      if (q.count == 0 || k.count == 0) continue;
      if (visibility.starts.empty()) {
        if (runs_see(visibility, q, k)) return true;
        continue;
      }
      const std::int64_t begin = std::max(q.first, k.first);
      const std::int64_t end = std::min(q.place(q.count - 1), k.place(k.count - 1));
      for (auto start = std::ranges::upper_bound(visibility.starts, begin) - 1;
           start != visibility.starts.end() && *start <= end; ++start)
        if (runs_see(visibility, part_in_sequence(visibility, *start, q),
                     part_in_sequence(visibility, *start, k)))
          return true;
    }
  return false;
}

AttentionParts::AttentionParts(const AttentionConfig& config)
    : visibility_{config.causal, config.window, config.starts} {
  const ContextParallel& context = config.context;
  SHARDMARK_CHECK(context.ulysses_size() == 1, "a core for ", name_of(context.kind),
                  " over the ring group alone");
  const int parts = context.cp.size;
  for (int part = 0; part < parts; ++part)
    places_.push_back(context.at(part).local_places(config.seq));
  for (int part = 0; part < parts; ++part) {
    const auto needed_at = [&](int distance) { return needs((part + distance) % parts, part); };
    int nearest = 1, farthest = parts - 1;
    while (nearest < parts && !needed_at(nearest)) ++nearest;
    while (farthest > 0 && !needed_at(farthest)) --farthest;
    nearest_.push_back(nearest);
    farthest_.push_back(farthest);
  }
}

void LaneTurns::wait(Rank& rank, Lane waiting) {
  rank.order(other(waiting), waiting);
  pending(other(waiting)).clear();
}

void LaneTurns::before(Rank& rank, Lane lane, const Tensor& scratch, Use use) {
  const auto found = pending(other(lane)).find(scratch.buffer);
  if (found == pending(other(lane)).end()) return;
  if (found->second.writes || use == Use::write) wait(rank, lane);
}

void LaneTurns::after(Rank& rank, Lane lane, const Tensor& scratch, Use use) {
  Pending& mine = pending(lane)[scratch.buffer];
  (use == Use::write ? mine.writes : mine.reads) = true;
  if (!overlap_) wait(rank, other(lane));
}

KeysValues halves(const Tensor& packed) {
  const std::int64_t rows = packed.rows() / 2;
  return {packed.row_block(0, rows), packed.row_block(rows, rows)};
}

Tensor sum_of(const Tensor& result, const Buffer& wide) {
  return result.dtype == DType::f32 ? result : wide.tensor();
}

void store_sum(Rank& rank, const Tensor& sum, const Tensor& result) {
  if (result.dtype != DType::f32) copy(rank, sum, result);
}

}  // namespace shardmark
