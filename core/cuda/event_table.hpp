#pragma once

#include "core/ops.hpp"

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace shardmark::cuda {

/// Which event stands for which fence. Events are used again only once everything is complete: one
/// that another stream records anew would no longer make a wait for its old fence wait for the old
/// stream.
template <class Event>
class EventTable {
 public:
  /// The event to record for the fence, made by `make()` if none is free. A fence that is signalled
  /// again keeps its event.
  template <class Make>
  Event record(Fence fence, const Make& make) {
    const auto found = recorded_.find(fence.id);
    if (found != recorded_.end()) return found->second;
    if (free_.empty()) free_.push_back(make());
    const Event event = free_.back();
    free_.pop_back();
    recorded_.emplace(fence.id, event);
    return event;
  }
  /// The event to wait for; null if the fence is complete.
  [[nodiscard]] const Event* find(Fence fence) const {
    const auto found = recorded_.find(fence.id);
    return found == recorded_.end() ? nullptr : &found->second;
  }
  /// All fences are complete, and their events free.
  void complete_all() {
    for (const auto& [id, event] : recorded_) free_.push_back(event);
    recorded_.clear();
  }
  /// Every event that was made. Only when all fences are complete.
  [[nodiscard]] const std::vector<Event>& events() const { return free_; }

 private:
  std::unordered_map<std::uint32_t, Event> recorded_;
  std::vector<Event> free_;
};

}  // namespace shardmark::cuda
