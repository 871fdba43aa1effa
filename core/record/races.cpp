// Happens-before with one vector clock per lane (Lamport 1978, Mattern 1989; the use for races is
// that of FastTrack, Flanagan and Freund 2009).
//
// Each lane counts its ops. A lane's clock says up to which op of every other lane it has waited.
// Signal stores the clock of its lane, Await takes the maximum with the stored one. An earlier
// access on lane l at tick t is ordered before the present op if the present clock has reached t
// in l. Accesses are kept per buffer; one that a newer, ordered access covers is dropped: whoever
// races with it also races with the newer one.

#include "core/record/races.hpp"

#include "core/error.hpp"
#include "core/record/describe.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace shardmark {
namespace {

using Clock = std::array<std::uint32_t, num_lanes>;

struct Access {
  const OpRecord* record;
  Tensor view;
  bool write;
  std::uint32_t tick;
};

/// True only if every element of `inner` is one of `outer`.
bool covers(const Tensor& outer, const Tensor& inner) {
  if (outer.dtype != inner.dtype) return false;
  const auto end = [](const Tensor& t) {
    return t.offset + (t.rows() - 1) * t.row_stride + t.cols();
  };
  if (outer.contiguous()) return outer.offset <= inner.offset && end(inner) <= end(outer);
  const std::int64_t stride = outer.row_stride;
  const std::int64_t shift = inner.offset - outer.offset;
  if (stride <= 0 || stride != inner.row_stride || shift < 0) return false;
  return shift % stride + inner.cols() <= outer.cols() &&
         shift / stride + inner.rows() <= outer.rows();
}

std::string with_lane(const OpRecord& record) {
  return message(describe(record), " on lane ", name_of(record.lane));
}

class RaceFinder {
 public:
  void visit(const OpRecord& record) {
    Clock& clock = clocks_[index_of(record.lane)];
    ++clock[index_of(record.lane)];
    if (const auto* signal = std::get_if<Signal>(&record.op)) {
      fences_[signal->fence.id] = clock;
    } else if (const auto* await = std::get_if<Await>(&record.op)) {
      join(record, await->fence, clock);
    } else {
      const Touches touched = touches(record.op);
      reported_.clear();
      for (const Tensor& view : touched.reads) access(record, view, false, clock);
      for (const Tensor& view : touched.writes) access(record, view, true, clock);
    }
  }
  [[nodiscard]] std::vector<std::string> take() { return std::move(problems_); }

 private:
  void join(const OpRecord& record, Fence fence, Clock& clock) {
    const auto found = fences_.find(fence.id);
    if (found == fences_.end()) {
      problems_.push_back(message(with_lane(record), " waits for fence ", fence.id,
                                  ", which no lane signals before"));
      return;
    }
    for (std::size_t lane = 0; lane < num_lanes; ++lane)
      clock[lane] = std::max(clock[lane], found->second[lane]);
  }

  void access(const OpRecord& record, const Tensor& view, bool write, const Clock& clock) {
    std::vector<Access>& past = past_[view.buffer];
    std::erase_if(past, [&](const Access& old) {
      const bool ordered = old.tick <= clock[index_of(old.record->lane)];
      if (ordered) return (write || !old.write) && covers(view, old.view);
      if ((write || old.write) && overlap(view, old.view)) report(old, record, view, write);
      return false;
    });
    past.push_back({&record, view, write, clock[index_of(record.lane)]});
  }

  void report(const Access& old, const OpRecord& record, const Tensor& view, bool write) {
    if (std::ranges::find(reported_, old.record->seq) != reported_.end()) return;
    reported_.push_back(old.record->seq);
    problems_.push_back(message(with_lane(*old.record), old.write ? " writes" : " reads", " and ",
                                with_lane(record), write ? " writes" : " reads", " buffer ",
                                view.buffer, ", and no fence orders them"));
  }

  std::array<Clock, num_lanes> clocks_{};
  std::unordered_map<std::uint32_t, Clock> fences_;
  std::unordered_map<std::uint32_t, std::vector<Access>> past_;
  std::vector<std::uint32_t> reported_;  ///< ops that race with the present one
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> find_races(std::span<const OpRecord> ops) {
  RaceFinder finder;
  for (const OpRecord& record : ops) finder.visit(record);
  return finder.take();
}

}  // namespace shardmark
