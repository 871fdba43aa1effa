#pragma once

// Compiled only where MPI was found (SHARDMARK_HAVE_MPI).

#include "core/error.hpp"
#include "core/transport.hpp"

#include <mpi.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace shardmark {

/// "MPI_Iallreduce failed: <text of the code>", as an Error.
[[noreturn]] void fail_mpi(int code, const char* call, const char* file, int line);
void report_mpi(int code, const char* call) noexcept;

/// Calls MPI; throws Error with the code's text and the call.
#define SHARDMARK_MPI(call)                                               \
  do {                                                                    \
    if (const int shardmark_code = (call); shardmark_code != MPI_SUCCESS) \
      ::shardmark::fail_mpi(shardmark_code, #call, __FILE__, __LINE__);   \
  } while (false)
/// For destructors: prints instead of throwing.
#define SHARDMARK_MPI_NOEXCEPT(call)                                      \
  do {                                                                    \
    if (const int shardmark_code = (call); shardmark_code != MPI_SUCCESS) \
      ::shardmark::report_mpi(shardmark_code, #call);                     \
  } while (false)

/// MPI between MPI_Init and MPI_Finalize. Create it before the process allocates much: it tells the
/// C library to keep large blocks, since otherwise every temporary buffer of MPI is faulted in
/// anew, which costs ten times the bandwidth.
class MpiSession {
 public:
  MpiSession(int argc, char** argv);
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  /// Finalizes where that does not hang. Not when an exception is in flight: peers may be gone.
  ~MpiSession();

 private:
  int exceptions_before_;
};

/// Ranks as processes of an MPI job. Never blocks in MPI: with more ranks than cores that costs
/// milliseconds per call, because MPICH spins. One per process, within an MpiSession.
class MpiTransport final : public Transport {
 public:
  MpiTransport();
  ~MpiTransport() override;

  [[nodiscard]] std::string_view name() const override { return "mpi"; }
  /// Where MPI gives MPI_THREAD_SERIALIZED or more.
  [[nodiscard]] bool may_change_thread() const override;
  /// Waits for the members before it makes the communicator, and so notices when one is gone.
  void connect(const Group& group, Lane lane) override;
  /// More than 2^31 - 1 elements are an Error, except in an all-reduce. All-reduces run in
  /// pieces of 2 MiB, two at a time: MPI's temporary buffers stay small (they would double the
  /// memory of a large one) and in the cache (64 MiB on two ranks of a host: about 20 % faster).
  void start(const Op& op, Lane lane) override;
  [[nodiscard]] bool test(Lane lane) override;
  [[nodiscard]] const std::vector<Endpoint>& endpoints() const override { return endpoints_; }
  [[nodiscard]] std::string find_dead_peer() override;
  [[nodiscard]] std::string give_up() override;
  [[noreturn]] void abort(int exit_code) override;

  /// How one rank's program ended, for `agree_on_end`.
  struct End {
    std::int64_t exit_code{0};
    std::uint64_t error_hash{0};  ///< equal errors have equal hashes
  };
  /// Tells every rank how this one ended and returns all ends in rank order; empty when not all
  /// ranks have answered after `timeout_s` (0: no limit) or one of them is gone. Apart from
  /// `exchange`, which peers may be in the middle of.
  [[nodiscard]] std::vector<End> agree_on_end(const End& mine, double timeout_s);

 private:
  struct Connection {
    Group group;
    MPI_Comm communicator{MPI_COMM_NULL};
  };
  /// What is left to do once MPI is done: the division of an `avg`, and a block that belongs
  /// elsewhere. A piece of an all-reduce, or everything.
  struct Piece {
    std::byte* result{nullptr};
    std::int64_t numel{0};
    std::byte* belongs_at{nullptr};
  };
  /// The communication of a lane: requests in flight and what is left of an all-reduce.
  struct Flight {
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    std::array<Piece, 2> pieces{};
    std::size_t oldest{0};
    const std::byte* next_source{nullptr};  ///< equal to next_target in place
    std::byte* next_target{nullptr};
    std::int64_t num_left{0}, piece_numel{0};
    DType dtype{DType::f32};
    int divisor{1};
    MPI_Datatype type{MPI_DATATYPE_NULL};
    MPI_Op op{MPI_OP_NULL};
    MPI_Comm communicator{MPI_COMM_NULL};
    std::vector<int> counts;  ///< of an all-to-all with counts, and their offsets
    SendRecv message{};       ///< what is received, for checking its length
    bool receives{false};     ///< the oldest request is a receive
  };
  /// A process of this host that find_dead_peer can see.
  struct Watched {
    int rank{0};
    std::int64_t pid{0}, start_ticks{0};
  };

  void make_half_ops();
  [[nodiscard]] MPI_Op op_of(DType dtype, Reduction reduction) const;
  // One overload per collective; a missing one does not compile. Groups have more than one member.
  void begin(const AllReduce& o, Flight& flight) const;
  void begin(const AllGather& o, Flight& flight) const;
  void begin(const ReduceScatter& o, Flight& flight) const;
  void begin(const AllToAll& o, Flight& flight) const;
  void begin(const AllToAllV& o, Flight& flight) const;
  void begin(const Broadcast& o, Flight& flight) const;
  void begin(const Reduce& o, Flight& flight) const;
  void begin(const Gather& o, Flight& flight) const;
  void begin(const Scatter& o, Flight& flight) const;
  void begin(const SendRecv& o, Flight& flight) const;
  void begin(const Barrier& o, Flight& flight) const;
  /// What the op means in a group of one, where MPI is not asked.
  static void copy_alone(const Op& op);
  static void start_piece(Flight& flight, std::size_t slot);
  static void finish_piece(const Flight& flight, Piece& piece);
  void finish_receive(Flight& flight, int code, const MPI_Status& status) const;
  void start_exchange(std::span<const std::byte> mine, std::span<std::byte> all) override;
  [[nodiscard]] bool test_exchange() override;

  void gather_endpoints();
  [[nodiscard]] const Connection* find(const Group& group, Lane channel);
  void meet(const Group& group, Lane channel);
  [[nodiscard]] std::string describe(int rank) const;
  void send_notices();
  void look_for_notices();

  MPI_Comm control_{MPI_COMM_NULL};  ///< exchange, and the meetings of `connect`
  MPI_Comm notices_{MPI_COMM_NULL};  ///< who gave up, and how ranks ended
  /// sum, prod, max and min of bf16, then of f16.
  std::array<MPI_Op, 8> half_ops_{};
  std::array<std::vector<Connection>, num_lanes> connections_;  ///< by channel
  std::array<std::size_t, num_lanes> latest_{};  ///< of each channel: mostly what is wanted
  std::array<Flight, num_lanes> flights_;
  MPI_Request exchange_request_{MPI_REQUEST_NULL};
  std::vector<Endpoint> endpoints_;
  std::vector<Watched> watched_;
  /// Per rank: who said so, and to whom no notice could be sent, since its connection is closed.
  std::vector<std::uint8_t> gave_up_, unreachable_;
  End my_end_;
  std::vector<End> ends_;
};

}  // namespace shardmark
