// The collectives of the MPI transport against a loop around the same non-blocking MPI call and
// MPI_Test, and against the blocking call, in turn within one program.

#include "bench/micro/mpi.hpp"

#include <algorithm>
#include <array>
#include <random>
#include <string>

namespace shardmark::micro {
namespace {

enum class Kind : std::uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all };
constexpr std::array kinds{Kind::all_reduce, Kind::all_gather, Kind::reduce_scatter,
                           Kind::all_to_all};
constexpr std::array names{"all_reduce", "all_gather", "reduce_scatter", "all_to_all"};

/// One collective of `bytes` in the larger buffer, out of place, f32.
struct Collective {
  Kind kind{};
  Machine& machine;
  Tensor x{}, y{};

  void submit() const {
    switch (kind) {
      case Kind::all_reduce:
        all_reduce(machine.rank, x, y, machine.group, Lane::tp);
        break;
      case Kind::all_gather:
        all_gather(machine.rank, x, y, machine.group, Lane::tp);
        break;
      case Kind::reduce_scatter:
        reduce_scatter(machine.rank, x, y, machine.group, Lane::tp);
        break;
      case Kind::all_to_all:
        all_to_all(machine.rank, x, y, machine.group, Lane::tp);
        break;
    }
    machine.rank.synchronize();
  }
  void test_loop() const {
    MPI_Request request = MPI_REQUEST_NULL;
    switch (kind) {
      case Kind::all_reduce:
        MPI_Iallreduce(x.data, y.data, numel(x), MPI_FLOAT, MPI_SUM, machine.communicator,
                       &request);
        break;
      case Kind::all_gather:
        MPI_Iallgather(x.data, numel(x), MPI_FLOAT, y.data, numel(x), MPI_FLOAT,
                       machine.communicator, &request);
        break;
      case Kind::reduce_scatter:
        MPI_Ireduce_scatter_block(x.data, y.data, numel(y), MPI_FLOAT, MPI_SUM,
                                  machine.communicator, &request);
        break;
      case Kind::all_to_all:
        MPI_Ialltoall(x.data, block(), MPI_FLOAT, y.data, block(), MPI_FLOAT, machine.communicator,
                      &request);
        break;
    }
    for (int done = 0; done == 0;) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  }
  void blocking() const {
    switch (kind) {
      case Kind::all_reduce:
        MPI_Allreduce(x.data, y.data, numel(x), MPI_FLOAT, MPI_SUM, machine.communicator);
        break;
      case Kind::all_gather:
        MPI_Allgather(x.data, numel(x), MPI_FLOAT, y.data, numel(x), MPI_FLOAT,
                      machine.communicator);
        break;
      case Kind::reduce_scatter:
        MPI_Reduce_scatter_block(x.data, y.data, numel(y), MPI_FLOAT, MPI_SUM,
                                 machine.communicator);
        break;
      case Kind::all_to_all:
        MPI_Alltoall(x.data, block(), MPI_FLOAT, y.data, block(), MPI_FLOAT, machine.communicator);
        break;
    }
  }

 private:
  [[nodiscard]] static int numel(const Tensor& tensor) { return static_cast<int>(tensor.numel()); }
  [[nodiscard]] int block() const { return numel(x) / machine.group.size; }
};

void measure(benchmark::State& state, Machine& machine, Kind kind, int calls_per_batch) {
  const std::int64_t n = machine.group.size;
  const std::int64_t total = state.range(0) / 4;
  const auto allocate = [&](bool is_block) {
    return machine.rank.allocate({is_block ? total / n : total}, DType::f32,
                                 Category::communication);
  };
  const Buffer x = allocate(kind == Kind::all_gather);
  const Buffer y = allocate(kind == Kind::reduce_scatter);
  fill(machine.rank, x.tensor(), 0);
  fill(machine.rank, y.tensor(), 0);
  machine.rank.synchronize();
  const Collective collective{kind, machine, x.tensor(), y.tensor()};
  std::array<std::vector<double>, 3> samples;
  const auto sample = [&](std::size_t way) {
    machine.transport.barrier();
    samples[way].push_back(time_us(calls_per_batch, [&] {
      way == 0 ? collective.submit() : way == 1 ? collective.test_loop() : collective.blocking();
    }));
  };
  for (std::size_t way = 0; way < samples.size(); ++way) sample(way);
  for (auto& warm_up : samples) warm_up.clear();
  // In another order each time, the same on all ranks: what a sample finds in the caches is what
  // the one before left there.
  std::array<std::size_t, 3> turns{0, 1, 2};
  std::minstd_rand random{1};
  for (auto _ : state) {
    std::ranges::shuffle(turns, random);
    for (const std::size_t way : turns) sample(way);
    state.SetIterationTime(samples[0].back() * 1e-6);
  }
  state.counters["submit_us"] = median(samples[0]);
  state.counters["test_loop_us"] = median(samples[1]);
  state.counters["blocking_us"] = median(samples[2]);
}

}  // namespace

void add_native(Machine& machine) {
  for (const Kind kind : kinds) {
    for (std::int64_t bytes = 4; bytes <= std::int64_t{256} << 20; bytes *= 4) {
      // A block holds at least one element.
      const std::int64_t least =
          kind == Kind::all_reduce ? 4 : 4 * std::int64_t{machine.group.size};
      const bool is_small = bytes <= 16384;
      const bool is_large = bytes > std::int64_t{4} << 20;
      const int calls = is_small ? 100 : is_large ? 1 : 10;
      benchmark::RegisterBenchmark(
          (std::string{"native/"} + names[static_cast<std::size_t>(kind)]).c_str(),
          [&machine, kind, calls](benchmark::State& state) {
            measure(state, machine, kind, calls);
          })
          ->ArgName("bytes")
          ->Arg(std::max(bytes, least))
          ->Iterations(is_large ? (bytes > (std::int64_t{16} << 20) ? 15 : 45) : 99)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace shardmark::micro
