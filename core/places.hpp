#pragma once

// Where tokens stand in their sequence, and which tokens an attention query sees from there. With a
// sequence split over ranks, rows are not places: a rank holds every n-th token, or two pieces.

#include <array>
#include <cstdint>
#include <span>

namespace shardmark {

/// The places of some tokens in their sequence, in the order of the rows that hold them: one run of
/// evenly spaced places, or two. Places ascend within a run.
struct Places {
  struct Run {
    std::int64_t first{0}, count{0}, stride{1};
    [[nodiscard]] std::int64_t place(std::int64_t row) const { return first + row * stride; }
    bool operator==(const Run&) const = default;
  };
  std::array<Run, 2> runs{};

  /// 0, 1, ..., count - 1.
  [[nodiscard]] static Places all(std::int64_t count) { return {{Run{0, count, 1}, Run{}}}; }
  [[nodiscard]] std::int64_t count() const { return runs[0].count + runs[1].count; }
  [[nodiscard]] std::int64_t operator[](std::int64_t row) const;
  /// Those of rows [first, first + count).
  [[nodiscard]] Places slice(std::int64_t first, std::int64_t count) const;
  bool operator==(const Places&) const = default;
};

/// Which keys a query sees, by their places.
struct Visibility {
  bool causal{true};       ///< only keys at the query's place or before it
  std::int64_t window{0};  ///< only keys less than this many places away; 0: no limit
  /// Packed sequences: the places where each begins, ascending from 0; a query sees only its own.
  /// Empty: one sequence.
  std::span<const std::int64_t> starts{};
};

/// The start of the packed sequence that `place` is in; 0 without packing.
[[nodiscard]] std::int64_t start_of(std::span<const std::int64_t> starts, std::int64_t place);

/// Rows [first, last) of a run of keys.
struct KeyRange {
  std::int64_t first{0}, last{0};
  [[nodiscard]] std::int64_t count() const { return last - first; }
};
/// The keys of `run` that the query at `place` sees: always a range. Empty ranges have
/// first == last.
[[nodiscard]] KeyRange visible_keys(const Visibility& visibility, std::int64_t place,
                                    const Places::Run& run);
/// Pairs of a query and a key that it sees: what an attention that skips all masked work computes.
[[nodiscard]] double visible_pairs(const Visibility& visibility, const Places& queries,
                                   const Places& keys);

}  // namespace shardmark
