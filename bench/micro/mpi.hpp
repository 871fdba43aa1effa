#pragma once

// What the micro-benchmarks under mpirun share.

#include "core/cpu/arena.hpp"
#include "core/cpu/backend.hpp"
#include "core/cpu/kernels.hpp"
#include "core/cpu/transport_mpi.hpp"
#include "core/functions.hpp"
#include "core/launch.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace shardmark::micro {

struct Machine {
  explicit Machine(Transport& used)
      : transport{used}, mesh{{.tp = used.size()}}, rank{used.rank(), mesh, backend} {
    group = rank.group(Axis::tp);
    transport.connect(group, Lane::tp);
    MPI_Comm_dup(MPI_COMM_WORLD, &communicator);
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine() { MPI_Comm_free(&communicator); }

  Transport& transport;
  Arena arena{std::int64_t{1} << 30};
  Kernels kernels{1, arena};
  CpuBackend backend{transport, arena, kernels};
  Mesh mesh;
  Rank rank;
  Group group;
  MPI_Comm communicator{MPI_COMM_NULL};
};

template <class Call>
double time_us(int calls, const Call& call) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i) call();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / calls;
}

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Registers native/COLLECTIVE: the transport's own collectives against plain MPI.
void add_native(Machine& machine);

}  // namespace shardmark::micro
