#include "core/cuda/backend.hpp"

#include "core/error.hpp"
#include "core/op_error.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace shardmark::cuda {
namespace {

/// Fences of the backend itself, one for each lane; Rank counts from below.
Fence own_fence(Lane lane) {
  constexpr std::uint32_t first_own_fence = 0xFFFFFF00;
  return {first_own_fence + static_cast<std::uint32_t>(index_of(lane))};
}

template <class Function>
void for_other_lanes(const Function& function) {
  for (std::size_t i = 0; i < num_lanes; ++i)
    if (static_cast<Lane>(i) != Lane::compute) function(static_cast<Lane>(i));
}

/// Keeps records, of which some are not wanted.
class RecordKeeper final : public KernelSink {
 public:
  RecordKeeper(std::vector<KernelRecord>& records, const std::set<std::uint32_t>& unwanted)
      : records_{records}, unwanted_{unwanted} {}
  void on_kernel(const KernelRecord& record) override {
    if (!unwanted_.contains(record.op_seq)) records_.push_back(record);
  }

 private:
  std::vector<KernelRecord>& records_;
  const std::set<std::uint32_t>& unwanted_;
};

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// On a lane of communication a compute op is a step of a collective.
OpKind kind_on_lane(const OpRecord& record) {
  return record.lane == Lane::compute ? OpKind::compute : OpKind::communication;
}

}  // namespace

CudaBackend::CudaBackend(Device& device, Transport& transport, const Options& options)
    : device_{device},
      transport_{transport},
      options_{options},
      op_times_{device},
      staging_{device} {}

CudaBackend::~CudaBackend() {
  transport_.activity().rest();
  for (std::byte* data : released_) device_.free(data, Lane::compute);
  for (std::size_t i = 0; i < num_lanes; ++i)
    if (workspaces_[i].data != nullptr) device_.free(workspaces_[i].data, static_cast<Lane>(i));
  for (const RotaryTable& table : tables_) deallocate(table.data, 0);
}

void CudaBackend::gather_lanes() {
  for_other_lanes([&](Lane lane) {
    device_.run(EventRecord{own_fence(lane)}, lane);
    device_.run(EventWait{own_fence(lane)}, Lane::compute);
  });
}

void CudaBackend::spread_lanes() {
  device_.run(EventRecord{own_fence(Lane::compute)}, Lane::compute);
  for_other_lanes([&](Lane lane) { device_.run(EventWait{own_fence(Lane::compute)}, lane); });
}

std::byte* CudaBackend::allocate(std::int64_t bytes, Category) {
  std::byte* const data = device_.allocate(bytes, Lane::compute);
  spread_lanes();
  return data;
}

/// After an error of the device nothing runs any more, so that nothing needs to be waited for.
void CudaBackend::deallocate(std::byte* data, std::int64_t) noexcept {
  if (num_held_ > 0) {
    released_.push_back(data);
    return;
  }
  try {
    gather_lanes();
  } catch (const Error&) {
  }
  device_.free(data, Lane::compute);
}

std::byte* CudaBackend::workspace(std::int64_t bytes, Lane lane) {
  Workspace& block = workspaces_[index_of(lane)];
  if (bytes > block.bytes) {
    if (block.data != nullptr) device_.free(block.data, lane);
    block = {};
    block = {device_.allocate(bytes, lane), bytes};
  }
  return block.data;
}

const float* CudaBackend::table_for(const Rope& op) {
  for (const RotaryTable& table : tables_)
    if (table.places == op.places && std::ranges::equal(table.starts, op.starts) &&
        table.seq == op.seq && table.head_dim == op.head_dim && table.theta == op.theta)
      return reinterpret_cast<const float*>(table.data);
  const std::vector<float> values = rotary_table(op);
  const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(float));
  std::byte* const data = device_.allocate(bytes, Lane::compute);
  device_.copy_to_device(data, values.data(), bytes, Lane::compute);
  spread_lanes();
  tables_.push_back(
      {op.places, {op.starts.begin(), op.starts.end()}, op.seq, op.head_dim, op.theta, data});
  return reinterpret_cast<const float*>(data);
}

std::string CudaBackend::refused_attention() {
  for (const Call& call : translation_.calls)
    if (const auto* attention = std::get_if<FusedAttention>(&call))
      if (const AttentionSupport& support = device_.fused_attention(*attention);
          !support.why_not.empty())
        return support.why_not;
  return {};
}

void CudaBackend::translate_op(const OpRecord& record) {
  const auto* rope = std::get_if<Rope>(&record.op);
  Resources resources{.rotary_table = rope == nullptr ? nullptr : table_for(*rope),
                      .allow_tf32 = options_.allow_tf32};
  const auto translate_again = [&] {
    resources.workspace = workspace(workspace_bytes(record.op, resources), record.lane);
    translate(record.op, resources, translation_);
  };
  const bool is_attention = std::holds_alternative<Attention>(record.op) ||
                            std::holds_alternative<AttentionBackward>(record.op);
  if (!is_attention) return translate_again();
  std::string why_not = why_not_fused(record.op);
  if (why_not.empty()) why_not = device_.fused_attention().why_not;
  resources.fused_attention = options_.fused_attention && why_not.empty();
  translate_again();
  if (resources.fused_attention) {
    why_not = refused_attention();
    resources.fused_attention = why_not.empty();
    if (!resources.fused_attention) translate_again();
  }
  if (!why_not.empty() && options_.fused_attention) notices_.insert(why_not);
}

bool CudaBackend::goes_through_host(const Op& op) const {
  const Group* const group = group_of(op);
  return options_.path != Path::nccl && group != nullptr && group->size > 1;
}

bool CudaBackend::must_wait(const OpRecord& record) const {
  const auto* await = std::get_if<Await>(&record.op);
  return await != nullptr && held_fences_.contains(await->fence.id);
}

void CudaBackend::execute(const OpRecord& record) {
  if (const auto* signal = std::get_if<Signal>(&record.op))
    last_fence_ = std::max(last_fence_, signal->fence.id);
  if (const auto* await = std::get_if<Await>(&record.op))
    SHARDMARK_CHECK(await->fence.id <= last_fence_, path_of(record), ": lane ",
                    name_of(record.lane), " waits for fence ", await->fence.id,
                    ", which no lane has signalled");
  transport_.activity().at(record);
  if (wants_times_ && !op_times_.has_begun()) op_times_.begin();
  Queue& queue = queues_[index_of(record.lane)];
  const bool is_next = queue.empty();
  if (is_next && !goes_through_host(record.op) && !must_wait(record)) {
    submit(record);
    return;
  }
  hold(record);
  if (is_next && !must_wait(record)) leave(queue, record.lane);
}

void CudaBackend::hold(const OpRecord& record) {
  if (const auto* signal = std::get_if<Signal>(&record.op)) held_fences_.insert(signal->fence.id);
  queues_[index_of(record.lane)].ops.push_back(record);
  ++num_held_;
}

KernelTimer* CudaBackend::timer() const {
  return options_.timer == nullptr ? nullptr : *options_.timer;
}

template <class Enqueue>
void CudaBackend::timed(const OpRecord& record, const Enqueue& enqueue) {
  KernelTimer* const timer = wants_times_ ? this->timer() : nullptr;
  if (timer != nullptr) timer->before_op(record);
  enqueue();
  if (timer != nullptr) timer->after_op(record);
}

void CudaBackend::submit(const OpRecord& record) {
  is_used_[index_of(record.lane)] = true;
  translate_op(record);
  if (!translation_.unavailable.empty())
    throw InputError{
        message(path_of(record), ": ", name_of(record.op), ": ", translation_.unavailable)};
  const auto enqueue = [&] {
    run_as_part_of(record, error_has_path_, [&] {
      for (const Call& call : translation_.calls) device_.run(call, record.lane);
    });
  };
  const OpKind kind = kind_of(record.op);
  if (sink_ == nullptr || kind == OpKind::ordering) {
    enqueue();
  } else {
    const bool marks = wants_times_ && timer() == nullptr;
    sink_->on_begin(record);
    const Device::Mark from = marks ? device_.mark(record.lane, true) : 0;
    timed(record, enqueue);
    if (marks)
      op_times_.add(record, kind == OpKind::communication ? kind : kind_on_lane(record), from,
                    device_.mark(record.lane, true));
    sink_->on_end(record);
  }
  flops_executed_ += flops_of(record.op);
  bytes_started_ += bytes_sent_of(record.op);
  if (const auto* signal = std::get_if<Signal>(&record.op)) held_fences_.erase(signal->fence.id);
}

/// The first op of the queue goes through the host: its stream is asked to come there.
void CudaBackend::leave(Queue& queue, Lane lane) {
  const OpRecord& record = queue.front();
  is_used_[index_of(lane)] = true;
  if (sink_ != nullptr) {
    sink_->on_begin(record);
    if (wants_times_) queue.begin = device_.mark(lane, true);
  }
  queue.staged =
      options_.path == Path::staged ? staging_.stage(record.op, lane) : StagedOp{record.op, {}, {}};
  timed(record, [&] {
    for (const MemoryCopy& copy : queue.staged.to_host) device_.run(copy, lane);
  });
  queue.there = device_.mark(lane, false);
  queue.stage = Queue::Stage::leaving;
  ++num_on_host_;
}

void CudaBackend::arrive(Queue& queue, Lane lane) {
  const OpRecord& record = queue.front();
  timed(record, [&] {
    for (const MemoryCopy& copy : queue.staged.to_device) device_.run(copy, lane);
  });
  if (sink_ != nullptr) {
    if (wants_times_) {
      if (timer() != nullptr) ops_by_marks_.insert(record.seq);
      op_times_.add(record, OpKind::communication, queue.begin, device_.mark(lane, true));
    }
    sink_->on_end(record);
  }
  bytes_started_ += bytes_sent_of(record.op);
  queue.stage = Queue::Stage::held;
  --num_on_host_;
}

void CudaBackend::pop(Queue& queue) {
  ++queue.head;
  --num_held_;
  if (!queue.empty()) return;
  queue.ops.clear();
  queue.head = 0;
}

bool CudaBackend::advance(Queue& queue, Lane lane) {
  const OpRecord& record = queue.front();
  switch (queue.stage) {
    case Queue::Stage::leaving:
      if (!device_.is_complete(queue.there)) return false;
      run_as_part_of(record, error_has_path_, [&] { transport_.start(queue.staged.op, lane); });
      queue.stage = Queue::Stage::moving;
      return true;
    case Queue::Stage::moving:
      if (!run_as_part_of(record, error_has_path_, [&] { return transport_.test(lane); }))
        return false;
      arrive(queue, lane);
      pop(queue);
      return true;
    case Queue::Stage::held:
      break;
  }
  if (must_wait(record)) return false;
  if (goes_through_host(record.op)) {
    leave(queue, lane);
  } else {
    submit(record);
    pop(queue);
  }
  return true;
}

void CudaBackend::run_held_ops() {
  Waiter waiter{transport_};
  while (num_held_ > 0) {
    bool moved = false;
    for (std::size_t lane = 0; lane < num_lanes; ++lane)
      while (!queues_[lane].empty() && advance(queues_[lane], static_cast<Lane>(lane)))
        moved = true;
    if (moved) {
      waiter.restart();
    } else if (num_on_host_ == 0) {
      throw Error{message("deadlock: ", stuck())};
    } else {
      check_communication();
      waiter.pause([this] { return stuck(); });
    }
  }
}

void CudaBackend::wait_for_streams() {
  std::array<Device::Mark, num_lanes> ends{};
  for (std::size_t lane = 0; lane < num_lanes; ++lane)
    if (is_used_[lane]) ends[lane] = device_.mark(static_cast<Lane>(lane), false);
  for (std::size_t lane = 0; lane < num_lanes; ++lane) {
    if (!is_used_[lane]) continue;
    Waiter waiter{transport_};
    while (!device_.is_complete(ends[lane])) {
      check_communication();
      waiter.pause(
          [&] { return message("lane ", name_of(static_cast<Lane>(lane)), " of the GPU"); });
    }
  }
}

/// Asked now and then only: NCCL looks at every communicator.
void CudaBackend::check_communication() {
  constexpr std::uint64_t looks_per_check = 1024;
  if (++num_looks_ % looks_per_check != 0) return;
  if (const std::string error = device_.find_communication_error(); !error.empty())
    throw PeerError{error};
}

void CudaBackend::synchronize() {
  try {
    run_held_ops();
    wait_for_streams();
    if (wants_times_ && op_times_.has_begun()) report_times();
    device_.synchronize();
  } catch (...) {
    give_up();
    throw;
  }
  clear();
}

void CudaBackend::report_times() {
  times_ = {op_times_.begin_ns(), now_ns(), 0};
  std::vector<KernelRecord> records;
  op_times_.collect(records);
  if (KernelTimer* const kernel_timer = timer(); kernel_timer != nullptr) {
    RecordKeeper keeper{records, ops_by_marks_};
    kernel_timer->collect(keeper);
  }
  std::ranges::stable_sort(records, {}, &KernelRecord::start_ns);
  for (KernelRecord& record : records) {
    // The clocks are related within some microseconds only.
    record.start_ns = std::clamp(record.start_ns, times_.begin_ns, times_.end_ns);
    record.end_ns = std::clamp(record.end_ns, record.start_ns, times_.end_ns);
    sink_->on_kernel(record);
  }
  times_.idle_ns = idle_ns_of(records, times_.begin_ns, times_.end_ns);
}

/// After an error: nothing is waited for that may not come.
void CudaBackend::give_up() noexcept {
  transport_.activity().rest();
  device_.abort_communication();
  transport_.withdraw();
  clear();
}

void CudaBackend::clear() {
  transport_.activity().rest();
  for (Queue& queue : queues_) {
    queue.ops.clear();
    queue.head = 0;
    queue.stage = Queue::Stage::held;
  }
  is_used_.fill(false);
  held_fences_.clear();
  ops_by_marks_.clear();
  op_times_.clear();
  num_held_ = 0;
  num_on_host_ = 0;
  error_has_path_ = false;
  staging_.free_outgrown();
  for (std::byte* data : std::exchange(released_, {})) deallocate(data, 0);
}

std::string CudaBackend::stuck() const {
  std::string text;
  for (std::size_t lane = 0; lane < num_lanes; ++lane) {
    if (queues_[lane].empty()) continue;
    const OpRecord& record = queues_[lane].front();
    if (!text.empty()) text += "; ";
    text += message("lane ", name_of(record.lane), " at ", path_of(record), ": ",
                    name_of(record.op), " #", record.seq);
    if (const Group* group = group_of(record.op)) text += message(" over ", group->to_string());
  }
  return text;
}

void CudaBackend::write(const Tensor& to, const void* from) {
  SHARDMARK_CHECK(to.contiguous(), "write needs a contiguous tensor");
  if (num_held_ > 0) synchronize();
  gather_lanes();
  device_.copy_to_device(to.data, from, to.bytes(), Lane::compute);
  spread_lanes();
}

void CudaBackend::read(const Tensor& from, void* to) {
  SHARDMARK_CHECK(from.contiguous(), "read needs a contiguous tensor");
  if (num_held_ > 0) synchronize();
  gather_lanes();
  device_.copy_to_host(to, from.data, from.bytes(), Lane::compute);
  synchronize();
}

}  // namespace shardmark::cuda
