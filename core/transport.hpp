#pragma once

#include "core/ops.hpp"
#include "core/watchdog.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardmark {

/// Where a rank runs.
struct Endpoint {
  int rank{0};
  std::string host;
  std::int64_t pid{0};
};

/// How ranks wait for each other.
struct WaitPolicy {
  bool yield{false};  ///< give the core away after every fruitless look: ranks outnumber cores
  /// Longest wait for one communication before PeerError. Also the longest that a rank may be at
  /// one op, before its Watchdog ends the job.
  double timeout_s{300.0};
};

/// Moves bytes between ranks; one per rank, used from that rank's thread only, unless
/// `may_change_thread`. The narrow part that differs between threads, MPI, NCCL. Nothing here
/// blocks except `exchange` and `connect`.
class Transport {
 public:
  Transport(int rank, int size) : rank_{rank}, size_{size} { set_wait_policy({}); }
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  /// "threads" or "mpi".
  [[nodiscard]] virtual std::string_view name() const = 0;

  /// Whether its functions may be called from several threads of this rank, one call at a time.
  [[nodiscard]] virtual bool may_change_thread() const { return true; }

  /// Prepares communication of `group` (world ranks) on `lane`: one communicator per (group,
  /// channel_of(lane)), see core/record/channel.hpp. Collective over the group's members, which
  /// call it in the same order; free when done before.
  virtual void connect(const Group& group, Lane lane) = 0;
  /// Starts a communication op on `lane`. At most one is in flight per lane, and the op's tensors
  /// stay untouched until `test` says it is done. Group and lane must be connected.
  virtual void start(const Op& op, Lane lane) = 0;
  /// Moves the communication in flight on `lane` along; true once it is complete.
  [[nodiscard]] virtual bool test(Lane lane) = 0;

  /// Control plane, never inside a timed iteration: every rank of the world contributes the same
  /// number of bytes and gets all contributions in rank order. Also a barrier. `idle` ranks (not
  /// taking part in a measurement) sleep between looks so that they disturb nobody. Throws
  /// PeerError when a peer dies or the time-out passes (idle waits have no time-out).
  enum class Waiting : std::uint8_t { active, idle };
  [[nodiscard]] std::vector<std::byte> exchange(std::span<const std::byte> mine,
                                                Waiting waiting = Waiting::active);
  void barrier(Waiting waiting = Waiting::active);
  /// The largest of all ranks' values, on every rank; likewise their sum.
  [[nodiscard]] double maximum(double value);
  [[nodiscard]] double sum(double value);
  /// Every rank's value in rank order.
  [[nodiscard]] std::vector<double> gather(double value);
  /// Every rank's bytes in rank order; lengths may differ.
  [[nodiscard]] std::vector<std::string> gather(const std::string& mine,
                                                Waiting waiting = Waiting::active);
  /// Rank 0's string, on every rank.
  [[nodiscard]] std::string broadcast(const std::string& from_rank_0,
                                      Waiting waiting = Waiting::active);

  /// Where every rank runs, in rank order.
  [[nodiscard]] virtual const std::vector<Endpoint>& endpoints() const = 0;
  /// Names a peer that is known to be gone ("rank 2 (host a, pid 71) is gone"), or is empty. Looked
  /// at a few times a second while waiting.
  [[nodiscard]] virtual std::string find_dead_peer() = 0;
  /// Tells the other ranks that this one waited too long, gives those that wait themselves a second
  /// to react (they see it in find_dead_peer), and names the ones that did not: "rank 1 (host a,
  /// pid 71)". Empty if all reacted.
  [[nodiscard]] virtual std::string give_up() = 0;
  /// After an error: gives up whatever is in flight, so that its tensors may be freed although
  /// peers run on. Nothing may be started afterwards. Where that cannot be done (MPI) it does
  /// nothing, and the caller must end the job.
  virtual void withdraw() noexcept {}
  /// Ends the whole job with a non-zero exit code; used after an error that peers cannot see.
  [[noreturn]] virtual void abort(int exit_code) = 0;

  /// Bytes that the communication this rank started moves across its link (bytes_wire_of; of
  /// messages what this rank sends), counted call by call as they are executed.
  [[nodiscard]] double bytes_started() const { return bytes_started_; }

  [[nodiscard]] const WaitPolicy& wait_policy() const { return wait_policy_; }
  void set_wait_policy(const WaitPolicy& policy) {
    wait_policy_ = policy;
    activity_.set_limit(policy.timeout_s);
  }
  /// What this rank is at; written by the backend and by Waiter.
  [[nodiscard]] Activity& activity() { return activity_; }

 protected:
  virtual void start_exchange(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  [[nodiscard]] virtual bool test_exchange() = 0;
  void count(const Op& op);

 private:
  int rank_, size_;
  WaitPolicy wait_policy_{};
  Activity activity_;
  double bytes_started_{0};
};

/// One wait: call `pause` after every fruitless look. Spins, yields or sleeps as the policy says,
/// and now and then looks for dead peers and the time-out.
class Waiter {
 public:
  explicit Waiter(Transport& transport, Transport::Waiting waiting = Transport::Waiting::active)
      : transport_{transport}, waiting_{waiting}, yield_{transport.wait_policy().yield} {}

  /// Begins a new wait: something moved.
  void restart() {
    looks_ = 0;
    begin_ = {};
    suspicious_ = false;
  }
  /// `what()` names what is waited for; only called for the error message. Throws PeerError.
  template <class What>
  void pause(const What& what) {
    ++looks_;
    if (waiting_ == Transport::Waiting::idle || yield_ || looks_ % looks_per_check == 0)
      if (const std::string problem = rest(); !problem.empty()) fail(problem, what());
  }

 private:
  static constexpr std::uint64_t looks_per_check = 4096;
  /// Yields or sleeps; once per 250 ms looks for trouble and describes it.
  [[nodiscard]] std::string rest();
  [[nodiscard]] std::string describe_timeout(double timeout_s);
  [[noreturn]] void fail(const std::string& problem, const std::string& what) const;

  using Clock = std::chrono::steady_clock;
  Transport& transport_;
  Transport::Waiting waiting_;
  bool yield_;
  bool timed_out_{false};
  bool suspicious_{false};  ///< a peer looked dead at the previous check
  std::uint64_t looks_{0};
  Clock::time_point begin_{}, next_check_{};
};

}  // namespace shardmark
