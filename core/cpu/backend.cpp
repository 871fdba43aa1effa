#include "core/cpu/backend.hpp"

#include "core/error.hpp"
#include "core/op_error.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <optional>

namespace shardmark {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

CpuBackend::CpuBackend(Transport& transport, Arena& arena, Kernels& kernels)
    : transport_{transport}, arena_{arena}, kernels_{kernels} {
  for (Queue& queue : queues_) queue.ops.reserve(256);
  tiles_.reserve(256);
}

CpuBackend::~CpuBackend() {
  transport_.activity().rest();
  for (std::byte* data : released_) arena_.deallocate(data);
}

std::byte* CpuBackend::allocate(std::int64_t bytes, Category) { return arena_.allocate(bytes); }

void CpuBackend::deallocate(std::byte* data, std::int64_t) noexcept {
  if (num_queued_ == 0)
    arena_.deallocate(data);
  else
    released_.push_back(data);
}

void CpuBackend::execute(const OpRecord& record) {
  if (const auto* signal = std::get_if<Signal>(&record.op)) {
    SHARDMARK_CHECK(signal->fence.id >= first_fence_, path_of(record), ": fence ", signal->fence.id,
                    " is below ", first_fence_,
                    ", the first after the latest synchronize; two Ranks at a time?");
    last_fence_ = std::max(last_fence_, signal->fence.id);
  }
  transport_.activity().at(record);
  queues_[index_of(record.lane)].ops.push_back(record);
  waiting_ |= 1U << index_of(record.lane);
  ++num_queued_;
}

void CpuBackend::set_progress_thread(bool on) {
  SHARDMARK_CHECK(!on || transport_.may_change_thread(), "the transport ", transport_.name(),
                  " can be used from one thread only");
  progress_.reset();
  if (on)
    progress_ = std::make_unique<ProgressThread>([this] {
      advance_communication();
      return num_in_flight_ > 0;
    });
}

void CpuBackend::synchronize() {
  if (sink_ != nullptr) times_ = {now_ns(), 0, 0};
  idle_since_ns_ = times_.begin_ns;
  if (num_queued_ > 0) {
    if (fence_done_.size() <= last_fence_ - first_fence_)
      fence_done_.resize(last_fence_ - first_fence_ + 1);
    try {
      drain();
    } catch (...) {
      transport_.activity().rest();
      transport_.withdraw();
      clear();
      throw;
    }
    clear();
    transport_.activity().rest();
  }
  if (sink_ != nullptr) {
    account_idle();
    times_.end_ns = idle_since_ns_;
  }
}

void CpuBackend::clear() {
  for (Queue& queue : queues_) {
    queue.ops.clear();
    queue.head = 0;
    queue.in_flight = false;
  }
  waiting_ = 0;
  num_queued_ = 0;
  num_in_flight_ = 0;
  error_has_path_ = false;
  computing_ = false;
  first_fence_ = last_fence_ + 1;
  fence_done_.clear();
  for (std::byte* data : released_) arena_.deallocate(data);
  released_.clear();
}

/// Adds the time since the last kernel or communication ended, if nothing was in flight.
void CpuBackend::account_idle() {
  if (sink_ == nullptr) return;
  const std::int64_t now = now_ns();
  if (num_in_flight_ == 0 && !computing_) times_.idle_ns += now - idle_since_ns_;
  idle_since_ns_ = now;
}

bool CpuBackend::is_done(Fence fence) const {
  return fence.id < first_fence_ ||
         (fence.id <= last_fence_ && fence_done_[fence.id - first_fence_] != 0);
}

template <class Action>
auto CpuBackend::run_as(const OpRecord& record, const Action& action) {
  // What the progress thread does meanwhile is no sign that the kernel moves on.
  std::optional<Activity::Step> step;
  if (!computing_) step.emplace(transport_.activity(), record);
  return run_as_part_of(record, error_has_path_, action);
}

void CpuBackend::start(Queue& queue, Lane lane) {
  const OpRecord& record = queue.ops[queue.head];
  if (sink_ != nullptr) {
    sink_->on_begin(record);
    account_idle();
    queue.start_ns = idle_since_ns_;
  }
  run_as(record, [&] { transport_.start(record.op, lane); });
  queue.in_flight = true;
  ++num_in_flight_;
}

void CpuBackend::finish(Queue& queue, Lane lane) {
  const OpRecord& record = queue.ops[queue.head];
  queue.in_flight = false;
  if (sink_ != nullptr) {
    account_idle();
    sink_->on_kernel({record.seq, lane, OpKind::communication, name_of(record.op).data(),
                      queue.start_ns, idle_since_ns_});
    sink_->on_end(record);
  }
  --num_in_flight_;
}

/// Moves one lane on if its head is not a compute op. True if anything changed.
bool CpuBackend::advance_head(Queue& queue, Lane lane) {
  const OpRecord& record = queue.ops[queue.head];
  if (queue.in_flight) {
    if (!run_as(record, [&] { return transport_.test(lane); })) return false;
    finish(queue, lane);
  } else if (const auto* signal = std::get_if<Signal>(&record.op)) {
    fence_done_[signal->fence.id - first_fence_] = 1;
  } else if (const auto* await = std::get_if<Await>(&record.op)) {
    if (!is_done(await->fence)) return false;
  } else if (kind_of(record.op) == OpKind::communication) {
    start(queue, lane);
    return true;
  } else {
    return false;
  }
  pop(queue, lane);
  return true;
}

void CpuBackend::pop(Queue& queue, Lane lane) {
  ++queue.head;
  --num_queued_;
  if (queue.empty()) waiting_ &= ~(1U << index_of(lane));
}

/// Advances every lane until each is empty, in flight, waiting, or at a compute op.
bool CpuBackend::advance_communication() {
  bool any = false;
  bool again = true;
  while (again) {
    again = false;
    for (std::uint32_t left = waiting_; left != 0; left &= left - 1) {
      const auto lane = static_cast<std::size_t>(std::countr_zero(left));
      Queue& queue = queues_[lane];
      while (!queue.empty() && advance_head(queue, static_cast<Lane>(lane))) again = true;
    }
    any = any || again;
  }
  return any;
}

void CpuBackend::between_tiles() {
  if (progress_ != nullptr) return;
  if (sink_ != nullptr) tiles_.emplace_back(tile_start_ns_, now_ns());
  idle_since_ns_ = tiles_.empty() ? 0 : tiles_.back().second;
  advance_communication();
  if (sink_ != nullptr) {
    account_idle();
    tile_start_ns_ = idle_since_ns_;
  }
}

/// With a progress thread: nothing moves while nothing is in flight, so it sleeps on then.
const char* CpuBackend::run_kernel(const OpRecord& record) {
  if (progress_ == nullptr || num_in_flight_ == 0) return kernels_.run(record.op, *this);
  computing_ = true;
  const char* name = progress_->beside([&] { return kernels_.run(record.op, *this); });
  computing_ = false;
  return name;
}

/// Runs the first compute op at the head of a lane. False if there is none.
bool CpuBackend::run_compute() {
  for (std::uint32_t left = waiting_; left != 0; left &= left - 1) {
    Queue& queue = queues_[static_cast<std::size_t>(std::countr_zero(left))];
    if (kind_of(queue.ops[queue.head].op) != OpKind::compute) continue;
    const OpRecord& record = queue.ops[queue.head];
    if (sink_ != nullptr) {
      tiles_.clear();
      sink_->on_begin(record);
      account_idle();
      tile_start_ns_ = idle_since_ns_;
    }
    // On another lane it is a step of a collective.
    const OpKind kind = record.lane == Lane::compute ? OpKind::compute : OpKind::communication;
    const char* name = run_as(record, [&] { return run_kernel(record); });
    if (sink_ != nullptr) {
      tiles_.emplace_back(tile_start_ns_, now_ns());
      idle_since_ns_ = tiles_.back().second;
      for (const auto& [start_ns, end_ns] : tiles_)
        sink_->on_kernel({record.seq, record.lane, kind, name, start_ns, end_ns});
      sink_->on_end(record);
    }
    flops_executed_ += flops_of(record.op);
    pop(queue, record.lane);
    return true;
  }
  return false;
}

void CpuBackend::drain() {
  Waiter waiter{transport_};
  while (num_queued_ > 0) {
    bool moved = advance_communication();
    moved = run_compute() || moved;
    if (moved) {
      waiter.restart();
    } else if (num_in_flight_ == 0) {
      throw Error{message("deadlock: ", stuck())};
    } else {
      waiter.pause([this] { return stuck(); });
    }
  }
}

std::string CpuBackend::stuck() const {
  std::string text;
  for (std::size_t lane = 0; lane < num_lanes; ++lane) {
    const Queue& queue = queues_[lane];
    if (queue.empty()) continue;
    const OpRecord& record = queue.ops[queue.head];
    if (!text.empty()) text += "; ";
    text += message("lane ", name_of(record.lane), " at ", path_of(record), ": ",
                    name_of(record.op), " #", record.seq);
    if (const Group* group = group_of(record.op)) text += message(" over ", group->to_string());
  }
  return text;
}

void CpuBackend::write(const Tensor& to, const void* from) {
  SHARDMARK_CHECK(to.contiguous(), "write needs a contiguous tensor");
  synchronize();
  std::memcpy(to.data, from, static_cast<std::size_t>(to.bytes()));
}

void CpuBackend::read(const Tensor& from, void* to) {
  SHARDMARK_CHECK(from.contiguous(), "read needs a contiguous tensor");
  synchronize();
  std::memcpy(to, from.data, static_cast<std::size_t>(from.bytes()));
}

}  // namespace shardmark
