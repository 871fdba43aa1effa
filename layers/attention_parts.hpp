#pragma once

// What the attention cores share that exchange keys and values: who needs which part of the
// sequence, fences around scratch buffers, and sums in f32.

#include "layers/attention_core.hpp"

#include <array>
#include <map>
#include <vector>

namespace shardmark {

/// True if some query sees some key; equal to visible_pairs(...) > 0, but without looking at every
/// row. All runs have one stride.
[[nodiscard]] bool sees_any(const Visibility& visibility, const Places& queries,
                            const Places& keys);

/// The sequence as the members of a ring group hold it: part p is member p's. A part travels from
/// its owner along the ring; `distance` counts the members it has passed.
class AttentionParts {
 public:
  explicit AttentionParts(const AttentionConfig& config);

  [[nodiscard]] int count() const { return static_cast<int>(places_.size()); }
  [[nodiscard]] const Places& places(int part) const { return places_[index(part)]; }
  /// True if some query of member `member` sees some key of part `part`.
  [[nodiscard]] bool needs(int member, int part) const {
    return sees_any(visibility_, places(member), places(part));
  }
  /// The distances to the nearest and to the farthest member that needs the part, its owner not
  /// counted; count() and 0 if there is none.
  [[nodiscard]] int nearest(int part) const { return nearest_[index(part)]; }
  [[nodiscard]] int farthest(int part) const { return farthest_[index(part)]; }

 private:
  static std::size_t index(int part) { return static_cast<std::size_t>(part); }

  Visibility visibility_;  ///< of the config, which outlives this
  std::vector<Places> places_;
  std::vector<int> nearest_, farthest_;
};

/// Fences between the compute lane and the cp lane where both use one scratch buffer, one of them
/// to write, and nowhere else. Without overlap each lane waits for every such use of the other.
class LaneTurns {
 public:
  enum class Use : std::uint8_t { read, write };

  explicit LaneTurns(bool overlap) : overlap_{overlap} {}
  /// Makes `lane` wait until it may use the buffer. May come earlier than the op that uses it, so
  /// as not to wait for what the other lane is given in between.
  void before(Rank& rank, Lane lane, const Tensor& scratch, Use use);
  /// Says that the last op given to `lane` uses the buffer.
  void after(Rank& rank, Lane lane, const Tensor& scratch, Use use);

 private:
  /// What a lane was given to do with a buffer and the other lane has not waited for.
  struct Pending {
    bool reads{false}, writes{false};
  };
  [[nodiscard]] static Lane other(Lane lane) {
    return lane == Lane::compute ? Lane::cp : Lane::compute;
  }
  using ByBuffer = std::map<std::uint32_t, Pending>;
  [[nodiscard]] ByBuffer& pending(Lane lane) { return pending_[lane == Lane::compute ? 0 : 1]; }
  /// Makes `waiting` wait for all that the other lane was given.
  void wait(Rank& rank, Lane waiting);

  bool overlap_;
  std::array<ByBuffer, 2> pending_;  ///< of compute and cp
};

/// Keys and values of one part in one contiguous tensor: the rows of k, then those of v.
struct KeysValues {
  Tensor k, v;
};
[[nodiscard]] KeysValues halves(const Tensor& packed);

/// Where a result is summed up over parts: in `wide`, or in the result itself if that is f32.
[[nodiscard]] Tensor sum_of(const Tensor& result, const Buffer& wide);
/// That sum, if there is one apart from the result, rounded to it.
void store_sum(Rank& rank, const Tensor& sum, const Tensor& result);

}  // namespace shardmark
