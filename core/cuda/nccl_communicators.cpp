#include "core/cuda/nccl_communicators.cuh"

#include "core/cuda/check.cuh"

#include <algorithm>
#include <cstdio>
#include <exception>

namespace shardmark::cuda {
namespace {

bool is_message(const NcclCall& call) {
  return call.function == NcclFunction::send || call.function == NcclFunction::receive;
}

/// "tp[0,1], lane tp"
std::string text_of(const Group& group, Lane channel) {
  return message(group.to_string(), ", lane ", name_of(channel));
}

}  // namespace

NcclCommunicators::~NcclCommunicators() {
  try {
    if (std::uncaught_exceptions() == 0) close();
  } catch (const Error& error) {
    std::fprintf(stderr, "shardmark: %s\n", error.what());
  }
  abort();
  for (const auto& [key, connection] : connections_)
    if (connection.barrier_byte != nullptr) memory_.free(connection.barrier_byte);
}

void NcclCommunicators::close() {
  if (!find_error().empty()) return;
  // All at once: a member may come to its communicators in another order.
  std::map<ChannelKey, ncclResult_t> results;
  for (const auto& [key, connection] : connections_)
    if (connection.communicator != nullptr) results[key] = nccl_.finalize(connection.communicator);
  for (const auto& [key, result] : results) {
    Connection& connection = connections_.at(key);
    settle(connection, result, "the end of communication");
    (void)nccl_.destroy(connection.communicator);
    connection.communicator = nullptr;
  }
}

void NcclCommunicators::connect(const Group& group, Lane lane) {
  const ChannelKey key = channel_key(group, lane);
  if (group.size == 1 || connections_.contains(key)) return;
  const ncclUniqueId id = share_id(group, lane);
  Connection& connection = connections_[key];
  connection.group = group;
  connection.channel = channel_of(lane);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  settle(connection, nccl_.init(&connection.communicator, group.size, id, group.position, &config),
         "ncclCommInitRankConfig");
  connection.barrier_byte = memory_.allocate();
}

/// Made by the first member; the others get it through the control transport.
ncclUniqueId NcclCommunicators::share_id(const Group& group, Lane lane) {
  transport_.connect(group, lane);
  ncclUniqueId id{};
  if (group.position == 0) {
    const ncclResult_t result = nccl_.get_unique_id(&id);
    if (result != ncclSuccess) fail({group, channel_of(lane)}, result, "ncclGetUniqueId");
  }
  const std::int64_t bytes = sizeof id;
  const Tensor tensor{1, DType::i8, {bytes}, 0, bytes, reinterpret_cast<std::byte*>(&id)};
  transport_.start(Broadcast{tensor, tensor, group, 0}, lane);
  Waiter waiter{transport_};
  while (!transport_.test(lane))
    waiter.pause([&] { return message("NCCL's identifier of ", cuda::text_of(group, lane)); });
  return id;
}

NcclCommunicators::Connection& NcclCommunicators::find(const Group& group, Lane lane) {
  const auto found = connections_.find(channel_key(group, lane));
  SHARDMARK_CHECK(found != connections_.end(), group.to_string(), " is not connected on lane ",
                  name_of(lane));
  SHARDMARK_CHECK(found->second.communicator != nullptr, "communication of ",
                  cuda::text_of(group, lane), " was given up");
  return found->second;
}

void NcclCommunicators::run(const NcclGroup& group, Lane lane, void* stream) {
  if (group.calls.empty()) return;
  const Connection& connection = find(group.group, lane);
  const bool is_grouped = group.calls.size() > 1 || is_message(group.calls.front());
  ncclResult_t result = is_grouped ? nccl_.group_start() : ncclSuccess;
  if (result != ncclSuccess) fail(connection, result, "ncclGroupStart");
  for (NcclCall call : group.calls) {
    if (group.barrier) {
      call.from = connection.barrier_byte;
      call.to = connection.barrier_byte;
    }
    result = enqueue(nccl_, call, connection.communicator, static_cast<cudaStream_t>(stream));
    if (result != ncclSuccess && result != ncclInProgress) break;
  }
  // A group that was started is ended, whatever happened in it.
  if (is_grouped) {
    const ncclResult_t end = nccl_.group_end();
    if (result == ncclSuccess || result == ncclInProgress) result = end;
  }
  settle(connection, result, name_of(group.calls.front().function));
}

void NcclCommunicators::settle(const Connection& connection, ncclResult_t result,
                               std::string_view what) {
  try {
    for (Waiter waiter{transport_}; result == ncclInProgress; result = state_of(connection))
      waiter.pause([&] {
        return message(what, " of ", cuda::text_of(connection.group, connection.channel));
      });
  } catch (const PeerError&) {
    abort();
    throw;
  }
  if (result != ncclSuccess) fail(connection, result, what);
}

void NcclCommunicators::fail(const Connection& connection, ncclResult_t result,
                             std::string_view what) {
  const std::string text = message(what, " of ", text_of(connection, result));
  abort();
  if (result == ncclRemoteError) throw PeerError{text};
  throw Error{text};
}

ncclResult_t NcclCommunicators::state_of(const Connection& connection) const {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = nccl_.get_async_error(connection.communicator, &state);
  return asked == ncclSuccess ? state : asked;
}

std::string NcclCommunicators::text_of(const Connection& connection, ncclResult_t result) const {
  const char* const last =
      connection.communicator == nullptr ? nullptr : nccl_.get_last_error(connection.communicator);
  const std::string detail = last == nullptr ? "" : last;
  return message(cuda::text_of(connection.group, connection.channel), ": ",
                 nccl_.get_error_string(result), detail.empty() ? "" : ", ", detail);
}

std::string NcclCommunicators::find_error() {
  for (const auto& [key, connection] : connections_) {
    if (connection.communicator == nullptr) continue;
    const ncclResult_t state = state_of(connection);
    if (state != ncclSuccess && state != ncclInProgress) return text_of(connection, state);
  }
  return {};
}

void NcclCommunicators::abort() noexcept {
  const bool is_done = std::ranges::all_of(
      connections_, [](const auto& entry) { return entry.second.communicator == nullptr; });
  if (is_done) return;
  // In a group all of them are told before the first is waited for: while one has a kernel that
  // runs on, freeing another's memory may wait for it.
  (void)nccl_.group_start();
  for (auto& [key, connection] : connections_)
    if (connection.communicator != nullptr) {
      (void)nccl_.abort(connection.communicator);
      connection.communicator = nullptr;
    }
  (void)nccl_.group_end();
}

// ------------------------------------------------------------------------------ the real thing

namespace {

std::byte* allocate_byte() {
  void* data = nullptr;
  SHARDMARK_CUDA(cudaMalloc(&data, 1));
  return static_cast<std::byte*>(data);
}
void free_byte(std::byte* data) noexcept { SHARDMARK_CUDA_NOEXCEPT(cudaFree(data)); }

}  // namespace

NcclFacts nccl_facts() {
  const NcclLibrary library = load_nccl();
  NcclFacts facts{0, library.missing};
  if (facts.missing.empty() && library.functions.get_version(&facts.version) != ncclSuccess)
    facts.missing = "NCCL does not say its version";
  return facts;
}

std::unique_ptr<Communicators> open_nccl(Transport& transport) {
  const NcclLibrary library = load_nccl();
  if (!library.missing.empty()) throw InputError{library.missing};
  return std::make_unique<NcclCommunicators>(transport, library.functions,
                                             NcclCommunicators::Memory{allocate_byte, free_byte});
}

}  // namespace shardmark::cuda
