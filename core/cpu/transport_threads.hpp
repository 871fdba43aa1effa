#pragma once

#include "core/transport.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace shardmark {

/// What the ranks of one process share: their meeting places and who has failed. Must outlive its
/// ThreadTransports. All functions may be called from any thread.
class ThreadWorld {
 public:
  explicit ThreadWorld(int size);
  ThreadWorld(const ThreadWorld&) = delete;
  ThreadWorld& operator=(const ThreadWorld&) = delete;
  ~ThreadWorld();

  [[nodiscard]] int size() const { return size_; }
  /// This rank's thread ends because of an error: whoever waits for it fails as well.
  void fail(int rank, const std::string& what);
  /// This rank's thread ends as planned.
  void finish(int rank);

 private:
  friend class ThreadTransport;
  struct Call;
  struct Mailbox;
  struct Meeting;
  struct Rank {
    enum class State : std::uint8_t { runs, gave_up, failed, ended };
    std::atomic<State> state{State::runs};
    std::string what;  ///< written before `state` becomes `failed`
  };

  [[nodiscard]] Meeting& meeting(const Group& group, Lane channel);
  [[nodiscard]] std::string trouble_seen_by(int rank) const;

  int size_;
  std::vector<Rank> ranks_;
  std::mutex mutex_;  ///< guards meetings_, which only `connect` looks at
  std::vector<std::unique_ptr<Meeting>> meetings_;
};

/// Ranks as threads of one process. A collective is a meeting: members post their pointers and
/// arrive; once all are there, each member's `test` copies or reduces its own part straight from
/// and to all members' memory. A message waits in the mailbox of its two members until the receiver
/// copies it straight from the sender's memory. Bytes move only in `test`, without locks.
class ThreadTransport final : public Transport {
 public:
  ThreadTransport(ThreadWorld& world, int rank);
  ~ThreadTransport() override;

  [[nodiscard]] std::string_view name() const override { return "threads"; }
  void connect(const Group& group, Lane lane) override;
  void start(const Op& op, Lane lane) override;
  [[nodiscard]] bool test(Lane lane) override;
  [[nodiscard]] const std::vector<Endpoint>& endpoints() const override { return endpoints_; }
  [[nodiscard]] std::string find_dead_peer() override;
  [[nodiscard]] std::string give_up() override;
  void withdraw() noexcept override;
  [[noreturn]] void abort(int exit_code) override;

 private:
  struct Connection {
    Group group;
    ThreadWorld::Meeting* meeting{nullptr};
    std::uint64_t num_calls{0};
  };
  struct Flight {
    Connection* connection{nullptr};  ///< null when nothing is in flight
    bool moved{false};                ///< this member's part of a collective is done
    // Of a SendRecv:
    bool is_message{false};
    ThreadWorld::Mailbox* outbox{nullptr};  ///< null when nothing is sent, or the message is taken
    ThreadWorld::Mailbox* inbox{nullptr};   ///< null when nothing is received, or all is there
    SendRecv message{};
  };

  void start_exchange(std::span<const std::byte> mine, std::span<std::byte> all) override;
  [[nodiscard]] bool test_exchange() override;

  [[nodiscard]] Connection* find(const Group& group, Lane channel);
  void post(Flight& flight, Connection& connection, const ThreadWorld::Call& call);
  void post(Flight& flight, Connection& connection, const SendRecv& message);
  /// True once all members have done their parts, or the message's two sides.
  [[nodiscard]] bool advance(Flight& flight);
  /// Moves this member's bytes once all members have arrived; true if that is done.
  bool do_my_part(Flight& flight);
  void do_my_parts();
  [[nodiscard]] bool advance_message(Flight& flight);
  /// Takes the message that has come, if it has; true if none is outstanding.
  bool receive(Flight& flight);
  void check_message(const Flight& flight) const;
  void check_peer(const Flight& flight, bool sending) const;
  void withdraw(Flight& flight) noexcept;
  void withdraw_message(Flight& flight) noexcept;
  void check_calls(const Connection& connection) const;
  void move_bytes(const Connection& connection);
  void exchange_by_counts(const Connection& connection);
  void reduce_part(const Connection& connection);

  ThreadWorld& world_;
  std::array<std::deque<Connection>, num_lanes> connections_;  ///< by channel
  std::array<Connection*, num_lanes> latest_{};  ///< of each channel: mostly what is wanted
  std::array<Flight, num_lanes> flights_;
  Connection exchange_connection_;
  Flight exchange_flight_;
  std::vector<Endpoint> endpoints_;
  std::vector<const std::byte*> sources_;  ///< scratch: `test` allocates nothing
  std::vector<std::byte*> targets_;
};

}  // namespace shardmark
