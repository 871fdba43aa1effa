// How an MpiTransport asks MPI for each op.

#include "core/cpu/reduce.hpp"
#include "core/cpu/transport_mpi.hpp"

#include <algorithm>
#include <climits>
#include <cstring>

namespace shardmark {
namespace {

template <DType dtype, Reduction reduction>
void combine_for_mpi(void* x, void* y, int* numel, MPI_Datatype*) {
  combine(dtype, reduction, static_cast<const std::byte*>(x), static_cast<std::byte*>(y), *numel);
}

/// MPI has no 16-bit floating-point types: bits are carried, and only op_of knows what they mean.
MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return MPI_FLOAT;
    case DType::f64:
      return MPI_DOUBLE;
    case DType::bf16:
    case DType::f16:
      return MPI_UINT16_T;
    case DType::i32:
      return MPI_INT32_T;
    case DType::i8:
      return MPI_INT8_T;
  }
  return MPI_DATATYPE_NULL;
}

int count_of(std::int64_t numel) {
  SHARDMARK_CHECK(numel <= INT_MAX, "a communication of ", numel,
                  " elements is too large: MPI counts to ", INT_MAX);
  return static_cast<int>(numel);
}
/// Elements of one block; all of them can be counted.
int count_of(const Tensor& block, const Group& group) {
  return count_of(block.numel() * group.size) / group.size;
}

void copy(const Tensor& x, const Tensor& y) {
  if (x.data != y.data && x.numel() > 0)
    std::memcpy(y.data, x.data, static_cast<std::size_t>(x.bytes()));
}

/// The member's own block of a tensor of blocks.
std::byte* own_block(const Tensor& whole, const Tensor& block, const Group& group) {
  return whole.data + group.position * block.bytes();
}

}  // namespace

void MpiTransport::make_half_ops() {
  constexpr int commutes = 1;
  std::size_t next = 0;
  const auto make = [&](MPI_User_function* function) {
    SHARDMARK_MPI(MPI_Op_create(function, commutes, &half_ops_[next++]));
  };
  make(combine_for_mpi<DType::bf16, Reduction::sum>);
  make(combine_for_mpi<DType::bf16, Reduction::prod>);
  make(combine_for_mpi<DType::bf16, Reduction::max>);
  make(combine_for_mpi<DType::bf16, Reduction::min>);
  make(combine_for_mpi<DType::f16, Reduction::sum>);
  make(combine_for_mpi<DType::f16, Reduction::prod>);
  make(combine_for_mpi<DType::f16, Reduction::max>);
  make(combine_for_mpi<DType::f16, Reduction::min>);
}

MPI_Op MpiTransport::op_of(DType dtype, Reduction reduction) const {
  const auto which =
      static_cast<std::size_t>(reduction == Reduction::avg ? Reduction::sum : reduction);
  if (dtype == DType::bf16) return half_ops_[which];
  if (dtype == DType::f16) return half_ops_[4 + which];
  const std::array<MPI_Op, 4> ops{MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN};
  return ops[which];
}

void MpiTransport::copy_alone(const Op& op) {
  std::visit(overloaded{
                 [](const AllReduce& o) {
                   if (o.y) copy(o.x, o.y);
                 },
                 [](const SendRecv& o) {
                   if (o.to >= 0 && o.from >= 0) copy(o.x, o.y);
                 },
                 [](const Barrier&) {},
                 [](const Communication auto& o) { copy(o.x, o.y); },
                 [](const Local auto&) {},
             },
             op);
}

void MpiTransport::begin(const AllReduce& o, Flight& flight) const {
  flight.next_source = o.x.data;
  flight.next_target = o.y ? o.y.data : o.x.data;
  flight.num_left = o.x.numel();
  flight.dtype = o.x.dtype;
  flight.divisor = o.reduction == Reduction::avg ? o.group.size : 1;
  flight.type = type_of(o.x.dtype);
  flight.op = op_of(o.x.dtype, o.reduction);
  constexpr std::int64_t large_bytes = 8 << 20, piece_bytes = 2 << 20;
  flight.piece_numel = o.x.bytes() < large_bytes ? o.x.numel() : piece_bytes / size_of(o.x.dtype);
  start_piece(flight, flight.oldest);
  start_piece(flight, 1 - flight.oldest);
}

/// Large sums in two pieces at a time: one is sent while the other is added up. Below that the
/// second call costs more than it hides.
void MpiTransport::start_piece(Flight& flight, std::size_t slot) {
  if (flight.num_left == 0) return;
  const std::int64_t count = std::min(flight.num_left, flight.piece_numel);
  const void* source = flight.next_source;
  if (flight.next_source == flight.next_target) source = MPI_IN_PLACE;
  SHARDMARK_MPI(MPI_Iallreduce(source, flight.next_target, static_cast<int>(count), flight.type,
                               flight.op, flight.communicator, &flight.requests[slot]));
  flight.pieces[slot] = {flight.next_target, count, nullptr};
  flight.next_source += count * size_of(flight.dtype);
  flight.next_target += count * size_of(flight.dtype);
  flight.num_left -= count;
}

void MpiTransport::finish_piece(const Flight& flight, Piece& piece) {
  if (piece.result == nullptr) return;
  if (flight.divisor > 1) divide(flight.dtype, piece.result, piece.numel, flight.divisor);
  if (piece.belongs_at != nullptr)
    std::memcpy(piece.belongs_at, piece.result,
                static_cast<std::size_t>(piece.numel * size_of(flight.dtype)));
  piece = {};
}

void MpiTransport::begin(const AllGather& o, Flight& flight) const {
  const int count = count_of(o.x, o.group);
  const MPI_Datatype type = type_of(o.x.dtype);
  const bool in_place = own_block(o.y, o.x, o.group) == o.x.data;
  SHARDMARK_MPI(MPI_Iallgather(in_place ? MPI_IN_PLACE : o.x.data, count, type, o.y.data, count,
                               type, flight.communicator, &flight.requests[flight.oldest]));
}

/// In place MPI leaves a member's block at the start of the buffer.
void MpiTransport::begin(const ReduceScatter& o, Flight& flight) const {
  const bool in_place = own_block(o.x, o.y, o.group) == o.y.data;
  std::byte* const result = in_place ? o.x.data : o.y.data;
  flight.dtype = o.x.dtype;
  flight.divisor = o.reduction == Reduction::avg ? o.group.size : 1;
  flight.pieces[flight.oldest] = {result, o.y.numel(), result == o.y.data ? nullptr : o.y.data};
  SHARDMARK_MPI(MPI_Ireduce_scatter_block(
      in_place ? MPI_IN_PLACE : o.x.data, result, count_of(o.y, o.group), type_of(o.x.dtype),
      op_of(o.x.dtype, o.reduction), flight.communicator, &flight.requests[flight.oldest]));
}

void MpiTransport::begin(const AllToAll& o, Flight& flight) const {
  const int count = count_of(o.x.numel()) / o.group.size;
  const MPI_Datatype type = type_of(o.x.dtype);
  SHARDMARK_MPI(MPI_Ialltoall(o.x.data, count, type, o.y.data, count, type, flight.communicator,
                              &flight.requests[flight.oldest]));
}

void MpiTransport::begin(const AllToAllV& o, Flight& flight) const {
  const auto n = static_cast<std::size_t>(o.group.size);
  const auto me = static_cast<std::size_t>(o.group.position);
  flight.counts.resize(4 * n);
  int* const sent = flight.counts.data();
  int* const sent_at = sent + n;
  int* const received = sent_at + n;
  int* const received_at = received + n;
  std::int64_t next_sent = 0;
  std::int64_t next_received = 0;
  for (std::size_t peer = 0; peer < n; ++peer) {
    sent_at[peer] = count_of(next_sent);
    received_at[peer] = count_of(next_received);
    next_sent += o.counts[me * n + peer];
    next_received += o.counts[peer * n + me];
    sent[peer] = count_of(next_sent) - sent_at[peer];
    received[peer] = count_of(next_received) - received_at[peer];
  }
  const MPI_Datatype type = type_of(o.x.dtype);
  SHARDMARK_MPI(MPI_Ialltoallv(o.x.data, sent, sent_at, type, o.y.data, received, received_at, type,
                               flight.communicator, &flight.requests[flight.oldest]));
}

void MpiTransport::begin(const Broadcast& o, Flight& flight) const {
  const bool is_root = o.group.position == o.root;
  if (is_root) copy(o.x, o.y);
  SHARDMARK_MPI(MPI_Ibcast(o.y.data, count_of(o.y.numel()), type_of(o.y.dtype), o.root,
                           flight.communicator, &flight.requests[flight.oldest]));
}

void MpiTransport::begin(const Reduce& o, Flight& flight) const {
  const bool is_root = o.group.position == o.root;
  const bool in_place = is_root && o.x.data == o.y.data;
  flight.dtype = o.x.dtype;
  flight.divisor = o.reduction == Reduction::avg ? o.group.size : 1;
  if (is_root) flight.pieces[flight.oldest] = {o.y.data, o.y.numel(), nullptr};
  SHARDMARK_MPI(MPI_Ireduce(in_place ? MPI_IN_PLACE : o.x.data, is_root ? o.y.data : nullptr,
                            count_of(o.x.numel()), type_of(o.x.dtype),
                            op_of(o.x.dtype, o.reduction), o.root, flight.communicator,
                            &flight.requests[flight.oldest]));
}

void MpiTransport::begin(const Gather& o, Flight& flight) const {
  const bool is_root = o.group.position == o.root;
  const bool in_place = is_root && own_block(o.y, o.x, o.group) == o.x.data;
  const int count = count_of(o.x, o.group);
  const MPI_Datatype type = type_of(o.x.dtype);
  SHARDMARK_MPI(MPI_Igather(in_place ? MPI_IN_PLACE : o.x.data, count, type,
                            is_root ? o.y.data : nullptr, count, type, o.root, flight.communicator,
                            &flight.requests[flight.oldest]));
}

void MpiTransport::begin(const Scatter& o, Flight& flight) const {
  const bool is_root = o.group.position == o.root;
  const bool in_place = is_root && own_block(o.x, o.y, o.group) == o.y.data;
  const int count = count_of(o.y, o.group);
  const MPI_Datatype type = type_of(o.y.dtype);
  SHARDMARK_MPI(MPI_Iscatter(is_root ? o.x.data : nullptr, count, type,
                             in_place ? MPI_IN_PLACE : o.y.data, count, type, o.root,
                             flight.communicator, &flight.requests[flight.oldest]));
}

void MpiTransport::begin(const SendRecv& o, Flight& flight) const {
  constexpr int tag = 0;
  std::size_t next = flight.oldest;
  flight.message = o;
  if (o.from >= 0) {
    SHARDMARK_MPI(MPI_Irecv(o.y.data, count_of(o.y.numel()), type_of(o.y.dtype), o.from, tag,
                            flight.communicator, &flight.requests[next]));
    flight.receives = true;
    next = 1 - next;
  }
  if (o.to >= 0)
    SHARDMARK_MPI(MPI_Isend(o.x.data, count_of(o.x.numel()), type_of(o.x.dtype), o.to, tag,
                            flight.communicator, &flight.requests[next]));
}

/// The oldest request was a receive and has ended with `code`.
void MpiTransport::finish_receive(Flight& flight, int code, const MPI_Status& status) const {
  flight.receives = false;
  const SendRecv& o = flight.message;
  int kind = MPI_SUCCESS;
  if (code != MPI_SUCCESS) SHARDMARK_MPI(MPI_Error_class(code, &kind));
  if (kind != MPI_SUCCESS && kind != MPI_ERR_TRUNCATE)
    fail_mpi(code, "MPI_Test of a receive", __FILE__, __LINE__);
  int numel = 0;
  if (kind == MPI_SUCCESS) SHARDMARK_MPI(MPI_Get_count(&status, type_of(o.y.dtype), &numel));
  SHARDMARK_CHECK(kind == MPI_SUCCESS && numel == o.y.numel(), "rank ", rank(), " receives ",
                  o.y.numel(), " x ", name_of(o.y.dtype), " where rank ",
                  o.group.world_rank(o.from), " sends ",
                  kind == MPI_SUCCESS ? std::to_string(numel) : std::string{"more"}, " on ",
                  o.group.to_string());
}

void MpiTransport::begin(const Barrier&, Flight& flight) const {
  SHARDMARK_MPI(MPI_Ibarrier(flight.communicator, &flight.requests[flight.oldest]));
}

bool MpiTransport::test(Lane lane) {
  // MPI moves large collectives on by a piece per look, and the way back through the executor takes
  // as long as a look.
  constexpr int looks = 4;
  Flight& flight = flights_[index_of(lane)];
  for (;;) {
    MPI_Request& request = flight.requests[flight.oldest];
    if (request == MPI_REQUEST_NULL) return true;
    int done = 0;
    if (flight.receives) {
      MPI_Status status{};
      const int code = MPI_Test(&request, &done, &status);
      if (code == MPI_SUCCESS && done == 0) return false;
      finish_receive(flight, code, status);
    } else {
      for (int look = 0; look < looks && done == 0; ++look)
        SHARDMARK_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
      if (done == 0) return false;
    }
    finish_piece(flight, flight.pieces[flight.oldest]);
    start_piece(flight, flight.oldest);
    flight.oldest = 1 - flight.oldest;
  }
}

}  // namespace shardmark
