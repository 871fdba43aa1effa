// All-reduce through Rank::submit against plain MPI in the same process: run under mpirun.
// Small sizes compare with MPI_Iallreduce tested until done, a large one with MPI_Allreduce; both
// profit from MpiSession's malloc settings.

#include "bench/micro/mpi.hpp"

namespace shardmark::micro {
namespace {

enum class Plain : std::uint8_t { blocking, nonblocking };

void call_mpi(Plain kind, const Tensor& x, MPI_Comm communicator) {
  const int count = static_cast<int>(x.numel());
  if (kind == Plain::blocking) {
    MPI_Allreduce(MPI_IN_PLACE, x.data, count, MPI_FLOAT, MPI_SUM, communicator);
    return;
  }
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(MPI_IN_PLACE, x.data, count, MPI_FLOAT, MPI_SUM, communicator, &request);
  for (int done = 0; done == 0;) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
}

/// Small batches of both ways in turn, because the speed of the machine drifts. The number of
/// iterations is fixed, so that every rank makes the same calls.
void all_reduce(benchmark::State& state, Machine& machine, Plain kind, int calls_per_batch) {
  const Buffer buffer =
      machine.rank.allocate({state.range(0) / 4}, DType::f32, Category::communication);
  const Tensor& x = buffer.tensor();
  fill(machine.rank, x, 0);
  machine.rank.synchronize();
  const auto submit = [&] {
    all_reduce(machine.rank, x, machine.group, Lane::tp);
    machine.rank.synchronize();
  };
  const auto plain = [&] { call_mpi(kind, x, machine.communicator); };
  time_us(3, submit);
  time_us(3, plain);
  std::vector<double> submit_us;
  std::vector<double> plain_us;
  for (auto _ : state) {
    machine.transport.barrier();
    submit_us.push_back(time_us(calls_per_batch, submit));
    machine.transport.barrier();
    plain_us.push_back(time_us(calls_per_batch, plain));
    state.SetIterationTime(submit_us.back() * 1e-6);
  }
  state.counters["submit_us"] = median(submit_us);
  state.counters["mpi_us"] = median(plain_us);
  state.counters["extra_us"] = median(submit_us) - median(plain_us);
  state.counters["speedup"] = median(plain_us) / median(submit_us);
}

/// The same benchmarks on every rank; only rank 0 prints.
void run_all(Transport& transport) {
  Machine machine{transport};
  const auto add = [&](const char* name, Plain kind, std::int64_t bytes, int calls_per_batch,
                       int batches) {
    benchmark::RegisterBenchmark(name,
                                 [&machine, kind, calls_per_batch](benchmark::State& state) {
                                   all_reduce(state, machine, kind, calls_per_batch);
                                 })
        ->ArgName("bytes")
        ->Arg(bytes)
        ->Iterations(batches)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  };
  for (const std::int64_t bytes : {4, 64, 1024, 16384})
    add("all_reduce/nonblocking", Plain::nonblocking, bytes, 100, 101);
  add("all_reduce/blocking", Plain::blocking, std::int64_t{64} << 20, 1, 15);
  add_native(machine);

  class Silent final : public benchmark::BenchmarkReporter {
    bool ReportContext(const Context&) override { return true; }
    void ReportRuns(const std::vector<Run>&) override {}
  } silent;
  if (transport.rank() == 0)
    benchmark::RunSpecifiedBenchmarks();
  else
    benchmark::RunSpecifiedBenchmarks(&silent);
}

}  // namespace
}  // namespace shardmark::micro

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  return shardmark::run_mpi(argc, argv, shardmark::micro::run_all);
}
