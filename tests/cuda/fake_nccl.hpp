#pragma once

// An NCCL that writes down what it is asked for. Communicators come to be when all members have
// asked for them; calls are run on host memory afterwards, by `FakeNccl::evaluate`.

#include "core/cuda/nccl_communicators.cuh"
#include "core/error.hpp"
#include "tests/cuda/evaluate_nccl.hpp"

#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

/// What NCCL keeps behind an ncclComm_t.
struct ncclComm {
  int clique{0};  ///< equal for all members
  int size{0}, rank{0};
};

namespace shardmark::cuda {

class FakeNccl;

/// The library as one rank sees it. Its functions find it by the thread that calls them.
struct FakeNcclRank {
  explicit FakeNcclRank(FakeNccl& world);
  FakeNcclRank(const FakeNcclRank&) = delete;
  FakeNcclRank& operator=(const FakeNcclRank&) = delete;
  ~FakeNcclRank() { current() = nullptr; }
  static FakeNcclRank*& current() {
    static thread_local FakeNcclRank* rank = nullptr;
    return rank;
  }

  /// A call with the communicator and stream that it was given.
  struct Call {
    int clique{0};
    void* stream{nullptr};
    NcclCall call;
  };
  FakeNccl& world;
  std::vector<std::string> log;  ///< every function by a word, those that move data with details
  std::vector<Call> calls;
  std::vector<std::unique_ptr<ncclComm>> communicators;
  int num_barrier_bytes{0};  ///< allocated and not freed
  // What goes wrong:
  ncclResult_t call_result{ncclSuccess};   ///< of every call that moves data
  ncclResult_t group_result{ncclSuccess};  ///< of ncclGroupEnd
  ncclResult_t state{ncclSuccess};         ///< of communicators that have come to be
  int num_polls_in_progress{0};            ///< before the state is seen
};

/// What the ranks share.
class FakeNccl {
 public:
  [[nodiscard]] static NcclFunctions functions();
  [[nodiscard]] static NcclCommunicators::Memory memory();

  /// Runs all calls of all members on host memory, each clique by itself.
  void evaluate();

  std::mutex mutex;
  int num_ids{0};
  std::map<int, int> num_arrived;                            ///< per clique
  std::map<int, std::map<int, std::vector<NcclCall>>> work;  ///< per clique and member
};

inline FakeNcclRank::FakeNcclRank(FakeNccl& shared) : world{shared} { current() = this; }

namespace fake_nccl {

inline FakeNcclRank& self() { return *FakeNcclRank::current(); }

inline DType dtype_of(ncclDataType_t type) {
  for (std::size_t i = 0; i < num_dtypes; ++i)
    if (nccl_type_of(static_cast<DType>(i)) == type) return static_cast<DType>(i);
  ADD_FAILURE() << "type " << type;
  return DType::f32;
}
inline Reduction reduction_of(ncclRedOp_t op) {
  for (const Reduction reduction :
       {Reduction::sum, Reduction::prod, Reduction::max, Reduction::min, Reduction::avg})
    if (nccl_op_of(reduction) == op) return reduction;
  ADD_FAILURE() << "operation " << op;
  return Reduction::sum;
}

inline ncclResult_t note(NcclFunction function, const void* from, void* to, std::size_t count,
                         ncclDataType_t type, ncclRedOp_t op, int peer, ncclComm_t communicator,
                         cudaStream_t stream) {
  FakeNcclRank& rank = self();
  const NcclCall call{function,
                      static_cast<const std::byte*>(from),
                      static_cast<std::byte*>(to),
                      static_cast<std::int64_t>(count),
                      dtype_of(type),
                      reduction_of(op),
                      peer};
  rank.calls.push_back({communicator->clique, stream, call});
  rank.log.push_back(message(name_of(function), ' ', count, ' ', name_of(call.dtype),
                             peer < 0 ? "" : message(' ', peer)));
  if (rank.call_result == ncclSuccess) {
    const std::lock_guard lock{rank.world.mutex};
    rank.world.work[communicator->clique][communicator->rank].push_back(call);
  }
  return rank.call_result;
}

inline ncclResult_t init(ncclComm_t* communicator, int size, ncclUniqueId id, int rank,
                         ncclConfig_t* config) {
  EXPECT_EQ(config->blocking, 0);
  auto made = std::make_unique<ncclComm>();
  std::memcpy(&made->clique, id.internal, sizeof made->clique);
  made->size = size;
  made->rank = rank;
  self().log.push_back(message("init ", rank, " of ", size));
  *communicator = made.get();
  const std::lock_guard lock{self().world.mutex};
  ++self().world.num_arrived[made->clique];
  self().communicators.push_back(std::move(made));
  return ncclInProgress;
}

inline ncclResult_t get_async_error(ncclComm_t communicator, ncclResult_t* state) {
  FakeNcclRank& rank = self();
  const std::lock_guard lock{rank.world.mutex};
  *state = rank.state;
  if (rank.world.num_arrived[communicator->clique] < communicator->size) *state = ncclInProgress;
  if (rank.num_polls_in_progress > 0) {
    --rank.num_polls_in_progress;
    *state = ncclInProgress;
  }
  return ncclSuccess;
}

inline ncclResult_t say(const char* what, ncclResult_t result = ncclSuccess) {
  self().log.emplace_back(what);
  return result;
}

inline ncclResult_t get_unique_id(ncclUniqueId* id) {
  const std::lock_guard lock{self().world.mutex};
  const int clique = ++self().world.num_ids;
  std::memset(id->internal, clique, sizeof id->internal);
  std::memcpy(id->internal, &clique, sizeof clique);
  return ncclSuccess;
}

}  // namespace fake_nccl

inline NcclFunctions FakeNccl::functions() {
  using namespace fake_nccl;
  NcclFunctions f;
  f.get_error_string = [](ncclResult_t result) {
    return result == ncclRemoteError ? "remote error" : "some error";
  };
  f.get_last_error = [](ncclComm_t) { return "last words"; };
  f.get_unique_id = get_unique_id;
  f.init = init;
  f.get_async_error = get_async_error;
  f.finalize = [](ncclComm_t) { return say("finalize", ncclInProgress); };
  f.destroy = [](ncclComm_t) { return say("destroy"); };
  f.abort = [](ncclComm_t) { return say("abort"); };
  f.group_start = [] { return say("start"); };
  f.group_end = [] { return say("end", self().group_result); };
  f.all_reduce = [](const void* from, void* to, std::size_t count, ncclDataType_t type,
                    ncclRedOp_t op, ncclComm_t communicator, cudaStream_t stream) {
    return note(NcclFunction::all_reduce, from, to, count, type, op, -1, communicator, stream);
  };
  f.all_gather = [](const void* from, void* to, std::size_t count, ncclDataType_t type,
                    ncclComm_t communicator, cudaStream_t stream) {
    return note(NcclFunction::all_gather, from, to, count, type, ncclSum, -1, communicator, stream);
  };
  f.reduce_scatter = [](const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, ncclComm_t communicator, cudaStream_t stream) {
    return note(NcclFunction::reduce_scatter, from, to, count, type, op, -1, communicator, stream);
  };
  f.broadcast = [](const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                   ncclComm_t communicator, cudaStream_t stream) {
    return note(NcclFunction::broadcast, from, to, count, type, ncclSum, root, communicator,
                stream);
  };
  f.reduce = [](const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                int root, ncclComm_t communicator, cudaStream_t stream) {
    return note(NcclFunction::reduce, from, to, count, type, op, root, communicator, stream);
  };
  f.send = [](const void* from, std::size_t count, ncclDataType_t type, int peer,
              ncclComm_t communicator, cudaStream_t stream) {
    return note(NcclFunction::send, from, nullptr, count, type, ncclSum, peer, communicator,
                stream);
  };
  f.receive = [](void* to, std::size_t count, ncclDataType_t type, int peer,
                 ncclComm_t communicator, cudaStream_t stream) {
    return note(NcclFunction::receive, nullptr, to, count, type, ncclSum, peer, communicator,
                stream);
  };
  return f;
}

inline NcclCommunicators::Memory FakeNccl::memory() {
  return {[] {
            ++fake_nccl::self().num_barrier_bytes;
            return new std::byte{};
          },
          [](std::byte* data) noexcept {
            --fake_nccl::self().num_barrier_bytes;
            delete data;
          }};
}

inline void FakeNccl::evaluate() {
  for (auto& [clique, members] : work) {
    std::size_t num_calls = 0;
    std::vector<NcclGroup> messages(members.size());
    std::vector<std::vector<NcclCall>> collectives;
    for (auto& [member, calls] : members) {
      NcclGroup& mine = messages[static_cast<std::size_t>(member)];
      mine.group = {Axis::tp, 0, 1, static_cast<int>(members.size()), member};
      num_calls = 0;
      for (const NcclCall& call : calls) {
        if (call.function == NcclFunction::send || call.function == NcclFunction::receive) {
          mine.calls.push_back(call);
          continue;
        }
        if (collectives.size() <= num_calls) collectives.emplace_back();
        collectives[num_calls++].push_back(call);
      }
    }
    for (const auto& calls : collectives) {
      ASSERT_EQ(calls.size(), members.size()) << "a member does not take part";
      host::run_collective(calls);
    }
    std::vector<const NcclGroup*> all;
    for (const NcclGroup& group : messages) all.push_back(&group);
    host::run_messages(all);
  }
}

}  // namespace shardmark::cuda
