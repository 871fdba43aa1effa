#pragma once

// A device on the host that runs its streams in a random order, of all that events allow: what a
// program does not order comes out wrong sooner or later.

#include "core/cuda/device.hpp"
#include "tests/cuda/evaluate.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace shardmark::cuda {

class FakeDevice final : public Device {
 public:
  explicit FakeDevice(unsigned seed) : generator_{seed} {}

  std::byte* allocate(std::int64_t bytes, Lane stream) override {
    auto block = std::make_unique<Block>();
    block->memory.resize(static_cast<std::size_t>(bytes) + 256);
    auto* const data = block->memory.data();
    std::byte* const begin = data + (256 - reinterpret_cast<std::uintptr_t>(data) % 256) % 256;
    enqueue(stream, [begin, bytes] { spoil(begin, bytes); });
    block->bytes = bytes;
    ++num_allocated;
    blocks_[begin] = std::move(block);
    return begin;
  }
  /// What still uses the memory afterwards finds it spoilt.
  void free(std::byte* data, Lane stream) noexcept override {
    const std::int64_t bytes = blocks_.at(data)->bytes;
    enqueue(stream, [data, bytes] { spoil(data, bytes); });
    --num_allocated;
  }
  void run(const Call& call, Lane stream) override {
    if (const auto* record = std::get_if<EventRecord>(&call)) {
      const auto event = std::make_shared<bool>(false);
      events_[record->fence.id] = event;
      enqueue(stream, [event] { *event = true; });
    } else if (const auto* wait = std::get_if<EventWait>(&call)) {
      ASSERT_TRUE(events_.contains(wait->fence.id)) << "a wait for an event without a record";
      streams_[index_of(stream)].push_back({events_[wait->fence.id], [] {}});
    } else {
      if (std::holds_alternative<FusedAttention>(call)) ++num_attentions;
      enqueue(stream, [call] { host::run(Translation{{call}, {}}); });
    }
  }
  void copy_to_device(std::byte* to, const void* from, std::int64_t bytes, Lane stream) override {
    const auto* begin = static_cast<const std::byte*>(from);
    enqueue(stream, [to, copy = std::vector<std::byte>(begin, begin + bytes)] {
      std::copy(copy.begin(), copy.end(), to);
    });
  }
  void copy_to_host(void* to, const std::byte* from, std::int64_t bytes, Lane stream) override {
    enqueue(stream, [to, from, bytes] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); });
  }
  void synchronize() override {
    while (run_some()) {
    }
    std::size_t num_left = 0;
    for (const auto& stream : streams_) num_left += stream.size();
    EXPECT_EQ(num_left, 0U) << "streams wait for each other";
    marks_.clear();
  }

  Mark mark(Lane stream, bool timed) override {
    ++(timed ? num_timed_marks : num_marks);
    auto reached = std::make_shared<Reached>();
    reached->timed = timed;
    marks_.push_back(reached);
    enqueue(stream, [reached] {
      reached->is_complete = true;
      reached->at = std::chrono::steady_clock::now();
    });
    return static_cast<Mark>(marks_.size() - 1);
  }
  /// Every look lets something run; some come too early all the same.
  bool is_complete(Mark mark) override {
    if (generator_() % 4 != 0) (void)run_some();
    return marks_.at(static_cast<std::size_t>(mark))->is_complete;
  }
  std::int64_t ns_between(Mark from, Mark to) override {
    const Reached& first = *marks_.at(static_cast<std::size_t>(from));
    const Reached& second = *marks_.at(static_cast<std::size_t>(to));
    EXPECT_TRUE(first.timed && first.is_complete && second.timed && second.is_complete);
    return std::chrono::duration_cast<std::chrono::nanoseconds>(second.at - first.at).count();
  }
  std::byte* allocate_host(std::int64_t bytes) override {
    ++num_host_blocks;
    auto* const data = new std::byte[static_cast<std::size_t>(bytes)];
    spoil(data, bytes);
    return data;
  }
  void free_host(std::byte* data) noexcept override {
    --num_host_blocks;
    delete[] data;
  }
  std::string find_communication_error() override { return communication_error; }
  void abort_communication() noexcept override {
    ++num_aborts;
    is_stopped_ = false;
  }

  const AttentionSupport& fused_attention() override { return attention; }
  const AttentionSupport& fused_attention(const FusedAttention& call) override {
    return call.backward ? attention_backward : attention;
  }

  /// Nothing runs any more until communication is given up.
  void stop() { is_stopped_ = true; }

  int num_allocated{0};    ///< blocks not given back
  int num_host_blocks{0};  ///< the same, on the host
  int num_marks{0}, num_timed_marks{0};
  int num_aborts{0};
  std::string communication_error;
  AttentionSupport attention, attention_backward;
  int num_attentions{0};  ///< that were run as one call

 private:
  struct Reached {
    bool timed{false}, is_complete{false};
    std::chrono::steady_clock::time_point at{};
  };
  /// Runs a stream that may run for a while, any of them. False if none may.
  bool run_some() {
    if (is_stopped_) return false;
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < num_lanes; ++i)
      if (!streams_[i].empty() && streams_[i].front().may_run()) ready.push_back(i);
    if (ready.empty()) return false;
    // Runs of one stream as well as changes: a bit decides.
    auto& stream = streams_[ready[generator_() % ready.size()]];
    do {
      stream.front().action();
      stream.pop_front();
    } while (!stream.empty() && stream.front().may_run() && generator_() % 2 == 0);
    return true;
  }
  struct Block {
    std::vector<std::byte> memory;
    std::int64_t bytes{0};
  };
  struct Task {
    std::shared_ptr<const bool> after;  ///< an event, or null
    std::function<void()> action;
    [[nodiscard]] bool may_run() const { return after == nullptr || *after; }
  };
  static void spoil(std::byte* data, std::int64_t bytes) {
    std::memset(data, 0x7F, static_cast<std::size_t>(bytes));
  }
  void enqueue(Lane stream, std::function<void()> action) {
    streams_[index_of(stream)].push_back({nullptr, std::move(action)});
  }

  std::mt19937 generator_;
  bool is_stopped_{false};
  std::array<std::deque<Task>, num_lanes> streams_;
  std::map<std::uint32_t, std::shared_ptr<bool>> events_;
  std::map<std::byte*, std::unique_ptr<Block>> blocks_;
  std::vector<std::shared_ptr<Reached>> marks_;
};

}  // namespace shardmark::cuda
