#include "core/cpu/transport_mpi.hpp"

#include "core/host.hpp"
#include "core/record/channel.hpp"

#include <malloc.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string_view>
#include <thread>

namespace shardmark {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int tag_gave_up = 1;

std::string text_of(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  return MPI_Error_string(code, text.data(), &length) == MPI_SUCCESS ? text.data() : "unknown";
}

int world_rank() {
  int rank = 0;
  SHARDMARK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  return rank;
}

int world_size() {
  int size = 0;
  SHARDMARK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
  return size;
}

/// MPI_Finalize of MPICH (4.0.2 with UCX) over TCP on three ranks or more: a rank needs its peers
/// to close its connections, and then waits for all ranks without serving them, so that any rank
/// that comes later, by a time slice, hangs.
bool finalize_would_hang() {
#ifdef MPICH_VERSION
  const char* const on_this_host = std::getenv("MPI_LOCALNRANKS");  // Hydra's
  return on_this_host != nullptr && std::atoi(on_this_host) < world_size();
#else
  return false;
#endif
}

/// Tells Hydra that this rank ends as it should, as the end of MPI_Finalize does (PMI's simple wire
/// protocol). Without it, the first rank of a host to end makes Hydra kill the others, and their
/// exit code depends on who is faster.
void finalize_launcher() {
  const char* const connection = std::getenv("PMI_FD");
  if (connection == nullptr) return;
  const int file = std::atoi(connection);
  constexpr std::string_view goodbye = "cmd=finalize\n";
  if (::send(file, goodbye.data(), goodbye.size(), MSG_NOSIGNAL) < 0) return;
  constexpr int patience_ms = 1000;
  pollfd answer{.fd = file, .events = POLLIN, .revents = 0};
  ::poll(&answer, 1, patience_ms);
}

}  // namespace

void fail_mpi(int code, const char* call, const char* file, int line) {
  throw Error{message(text_of(code), " (code ", code, ") from ", call), message(file, ':', line)};
}

void report_mpi(int code, const char* call) noexcept {
  std::fprintf(stderr, "shardmark: code %d from %s\n", code, call);
}

// --------------------------------------------------------------------------------- MpiSession

MpiSession::MpiSession(int argc, char** argv) : exceptions_before_{std::uncaught_exceptions()} {
  constexpr int keep = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, keep);
  mallopt(M_TRIM_THRESHOLD, keep);
  mallopt(M_TOP_PAD, 64 << 20);
  int provided = 0;
  // Only a progress thread needs more than MPI_THREAD_FUNNELED: may_change_thread.
  SHARDMARK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided));
  SHARDMARK_CHECK(provided >= MPI_THREAD_FUNNELED, "MPI gives thread level ", provided,
                  ", MPI_THREAD_FUNNELED is needed");
  // Hydra, told not to clean up, tells survivors of a lost rank with this signal; find_dead_peer
  // finds it without.
  std::signal(SIGUSR1, SIG_IGN);
  SHARDMARK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  SHARDMARK_MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
}

MpiSession::~MpiSession() {
  if (std::uncaught_exceptions() > exceptions_before_) return;
  // MPI_Finalize spins until the last rank has come.
  MPI_Request request = MPI_REQUEST_NULL;
  SHARDMARK_MPI_NOEXCEPT(MPI_Ibarrier(MPI_COMM_WORLD, &request));
  for (int done = 0; done == 0; sched_yield())
    SHARDMARK_MPI_NOEXCEPT(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
  if (!finalize_would_hang()) {
    SHARDMARK_MPI_NOEXCEPT(MPI_Finalize());
    return;
  }
  // The last messages of the barrier may still be on their way.
  for (const auto end = Clock::now() + std::chrono::milliseconds{50}; Clock::now() < end;) {
    int found = 0;
    SHARDMARK_MPI_NOEXCEPT(
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE));
    sched_yield();
  }
  finalize_launcher();
}

// ------------------------------------------------------------------------------- MpiTransport

MpiTransport::MpiTransport() : Transport{world_rank(), world_size()} {
  SHARDMARK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &control_));
  SHARDMARK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &notices_));
  make_half_ops();
  gave_up_.resize(static_cast<std::size_t>(size()));
  unreachable_.resize(static_cast<std::size_t>(size()));
  ends_.resize(static_cast<std::size_t>(size()));
  gather_endpoints();
}

// Communicators stay until MPI_Finalize: MPI_Comm_free is collective, and peers may be gone.
MpiTransport::~MpiTransport() {
  for (MPI_Op& op : half_ops_) SHARDMARK_MPI_NOEXCEPT(MPI_Op_free(&op));
}

void MpiTransport::gather_endpoints() {
  struct Packed {
    std::array<char, 256> host{};
    std::int64_t pid{0}, start_ticks{0};
  };
  Packed mine;
  host_name().copy(mine.host.data(), mine.host.size() - 1);
  mine.pid = ::getpid();
  mine.start_ticks = process_state(mine.pid).start_ticks;
  const WaitPolicy before = wait_policy();
  set_wait_policy({.yield = true});
  const std::vector<std::byte> all = exchange(std::as_bytes(std::span{&mine, 1}));
  set_wait_policy(before);
  for (int peer = 0; peer < size(); ++peer) {
    Packed packed;
    std::memcpy(&packed, all.data() + static_cast<std::size_t>(peer) * sizeof packed,
                sizeof packed);
    endpoints_.push_back({peer, packed.host.data(), packed.pid});
    // In another container of the same name its pid would mean something else, or nothing.
    if (peer != rank() && endpoints_.back().host == host_name() &&
        process_state(packed.pid).start_ticks == packed.start_ticks)
      watched_.push_back({peer, packed.pid, packed.start_ticks});
  }
}

bool MpiTransport::may_change_thread() const {
  int provided = 0;
  SHARDMARK_MPI(MPI_Query_thread(&provided));
  return provided >= MPI_THREAD_SERIALIZED;
}

const MpiTransport::Connection* MpiTransport::find(const Group& group, Lane channel) {
  const auto& connections = connections_[index_of(channel)];
  std::size_t& latest = latest_[index_of(channel)];
  if (latest < connections.size() && same_members(connections[latest].group, group))
    return &connections[latest];
  for (std::size_t i = 0; i < connections.size(); ++i)
    if (same_members(connections[i].group, group)) return &connections[latest = i];
  return nullptr;
}

void MpiTransport::connect(const Group& group, Lane lane) {
  SHARDMARK_CHECK(group.world_rank(group.position) == rank(), "rank ", rank(), " is not member ",
                  group.position, " of ", group.to_string());
  const Lane channel = channel_of(lane);
  if (find(group, channel) != nullptr) return;
  Connection connection{group, MPI_COMM_NULL};
  if (group.size > 1) {
    meet(group, channel);
    MPI_Group world = MPI_GROUP_NULL;
    MPI_Group members = MPI_GROUP_NULL;
    std::array<int, 3> range{group.first, group.world_rank(group.size - 1), group.stride};
    SHARDMARK_MPI(MPI_Comm_group(control_, &world));
    SHARDMARK_MPI(
        MPI_Group_range_incl(world, 1, reinterpret_cast<int(*)[3]>(range.data()), &members));
    SHARDMARK_MPI(MPI_Comm_create_group(control_, members, static_cast<int>(index_of(channel)),
                                        &connection.communicator));
    SHARDMARK_MPI(MPI_Group_free(&members));
    SHARDMARK_MPI(MPI_Group_free(&world));
  }
  connections_[index_of(channel)].push_back(connection);
}

/// A barrier of the members that does not block in MPI, as MPI_Comm_create_group would.
void MpiTransport::meet(const Group& group, Lane channel) {
  std::vector<MPI_Request> requests;
  const int tag = static_cast<int>(index_of(channel));
  for (int member = 0; member < group.size; ++member) {
    const int peer = group.world_rank(member);
    if (peer == rank()) continue;
    SHARDMARK_MPI(MPI_Irecv(nullptr, 0, MPI_BYTE, peer, tag, control_, &requests.emplace_back()));
    SHARDMARK_MPI(MPI_Isend(nullptr, 0, MPI_BYTE, peer, tag, control_, &requests.emplace_back()));
  }
  Waiter waiter{*this};
  for (;;) {
    int done = 0;
    SHARDMARK_MPI(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done,
                              MPI_STATUSES_IGNORE));
    if (done != 0) return;
    waiter.pause([&] {
      return message("the members of ", group.to_string(), " to connect lane ", name_of(channel));
    });
  }
}

void MpiTransport::start(const Op& op, Lane lane) {
  Flight& flight = flights_[index_of(lane)];
  SHARDMARK_CHECK(flight.requests[flight.oldest] == MPI_REQUEST_NULL, "lane ", name_of(lane),
                  " is busy");
  const Group* group = group_of(op);
  SHARDMARK_CHECK(group != nullptr, name_of(op), " is not communication");
  const Connection* connection = find(*group, channel_of(lane));
  SHARDMARK_CHECK(connection != nullptr, group->to_string(), " is not connected on lane ",
                  name_of(lane));
  std::visit(overloaded{
                 [&](const Communication auto& o) {
                   if (o.group.size == 1) return copy_alone(op);
                   flight.communicator = connection->communicator;
                   begin(o, flight);
                 },
                 [](const Local auto&) {},
             },
             op);
  count(op);
}

void MpiTransport::start_exchange(std::span<const std::byte> mine, std::span<std::byte> all) {
  SHARDMARK_CHECK(mine.size() <= INT_MAX, "an exchange of ", mine.size(), " bytes is too large");
  const int bytes = static_cast<int>(mine.size());
  SHARDMARK_MPI(MPI_Iallgather(mine.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, control_,
                               &exchange_request_));
}

bool MpiTransport::test_exchange() {
  int done = 0;
  SHARDMARK_MPI(MPI_Test(&exchange_request_, &done, MPI_STATUS_IGNORE));
  return done != 0;
}

// ------------------------------------------------------------------------- who is still there

std::string MpiTransport::describe(int rank) const {
  const Endpoint& at = endpoints_[static_cast<std::size_t>(rank)];
  return message("rank ", rank, " (host ", at.host, ", pid ", at.pid, ")");
}

std::string MpiTransport::find_dead_peer() {
  for (const Watched& peer : watched_) {
    const ProcessState state = process_state(peer.pid);
    if (!state.alive() || state.start_ticks != peer.start_ticks)
      return describe(peer.rank) + " is gone";
  }
  look_for_notices();
  const auto found = std::ranges::find_if(gave_up_, [](std::uint8_t value) { return value != 0; });
  if (found == gave_up_.end()) return {};
  send_notices();
  // Between hosts this is how a dead peer shows, and why the other one gave up.
  if (const auto lost = std::ranges::find(unreachable_, 1); lost != unreachable_.end())
    return describe(static_cast<int>(lost - unreachable_.begin())) + " cannot be reached";
  return describe(static_cast<int>(found - gave_up_.begin())) + " gave up waiting";
}

void MpiTransport::send_notices() {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Isend(nullptr, 0, MPI_BYTE, peer, tag_gave_up, notices_, &request) != MPI_SUCCESS) {
      unreachable_[static_cast<std::size_t>(peer)] = 1;
      continue;
    }
    SHARDMARK_MPI(MPI_Request_free(&request));
  }
}

void MpiTransport::look_for_notices() {
  for (;;) {
    int found = 0;
    MPI_Status status{};
    SHARDMARK_MPI(MPI_Iprobe(MPI_ANY_SOURCE, tag_gave_up, notices_, &found, &status));
    if (found == 0) return;
    SHARDMARK_MPI(MPI_Recv(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, tag_gave_up, notices_,
                           MPI_STATUS_IGNORE));
    gave_up_[static_cast<std::size_t>(status.MPI_SOURCE)] = 1;
  }
}

std::string MpiTransport::give_up() {
  send_notices();
  std::string silent;
  for (int look = 0; look < 50; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    look_for_notices();
    silent.clear();
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank() && gave_up_[static_cast<std::size_t>(peer)] == 0)
        silent += (silent.empty() ? "" : ", ") + describe(peer);
    if (silent.empty()) break;
  }
  return silent;
}

std::vector<MpiTransport::End> MpiTransport::agree_on_end(const End& mine, double timeout_s) {
  my_end_ = mine;
  MPI_Request request = MPI_REQUEST_NULL;
  SHARDMARK_MPI(MPI_Iallgather(&my_end_, sizeof my_end_, MPI_BYTE, ends_.data(), sizeof my_end_,
                               MPI_BYTE, notices_, &request));
  const Clock::time_point begin = Clock::now();
  int num_suspicions = 0;
  for (int look = 1;; ++look) {
    int done = 0;
    SHARDMARK_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    if (done != 0) return ends_;
    if (look < 1000) {
      sched_yield();
      continue;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
    if (timeout_s > 0 && Clock::now() - begin > std::chrono::duration<double>{timeout_s}) return {};
    if (look % 250 != 0) continue;
    num_suspicions = find_dead_peer().empty() ? 0 : num_suspicions + 1;
    if (num_suspicions > 1) return {};
  }
}

void MpiTransport::abort(int exit_code) {
  std::cout.flush();
  std::fflush(nullptr);
  // mpirun drops what is still in its pipes when a rank aborts.
  std::this_thread::sleep_for(std::chrono::milliseconds{100});
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

}  // namespace shardmark
