#include "bench/harness/probes.hpp"

#include "bench/harness/statistics.hpp"
#include "bench/harness/together.hpp"
#include "core/functions.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>

namespace shardmark::bench {
namespace {

/// Median time of `run`, microseconds.
template <class Run>
double median_us(int count, const Run& run) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times_us;
  for (int i = 0; i < count; ++i) {
    const Clock::time_point begin = Clock::now();
    run();
    times_us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  return median(times_us);
}

}  // namespace

double PeakMeter::Rates::best() const { return std::max(median(plain), median(packed)); }

PeakMeter::PeakMeter(Engine* engine, DType dtype, double user_tflops, Transport& transport,
                     int num_active)
    : transport_{transport},
      num_active_{num_active},
      waiting_{transport.rank() < num_active ? Transport::Waiting::active
                                             : Transport::Waiting::idle} {
  if (user_tflops > 0)
    known_ = Peak{user_tflops, user_tflops, "user"};
  else if (engine != nullptr)
    known_ = engine->known_peak(dtype);
  // Ranks outside of the case skip what the others skip.
  const int is_known = exchange_all(transport, known_ ? 1 : 0, waiting_).front();
  if (is_known != 0 && !known_) known_.emplace();
  probe_ = engine == nullptr || known_ ? nullptr : engine->gemm_probe(dtype);
}

void PeakMeter::run(Rates& rates) {
  rates.plain.push_back(probe_->run_tflops(GemmProbe::Layout::plain));
  rates.packed.push_back(probe_->run_tflops(GemmProbe::Layout::packed));
}

void PeakMeter::probe() {
  if (known_) return;
  transport_.barrier(waiting_);
  if (probe_ != nullptr) run(together_);
}

void PeakMeter::probe_alone() {
  if (known_ || num_active_ == 1) return;
  transport_.barrier(waiting_);
  if (transport_.rank() == 0) run(alone_);
  transport_.barrier(transport_.rank() == 0 ? waiting_ : Transport::Waiting::idle);
}

Peak PeakMeter::result() {
  if (known_) return *known_;
  const double mine = probe_ != nullptr ? together_.best() : 0;
  const std::vector<double> all = exchange_all(transport_, mine, waiting_);
  const double together =
      std::accumulate(all.begin(), all.begin() + num_active_, 0.0) / num_active_;
  const double alone = alone_.packed.empty() ? mine : alone_.best();
  return {together, alone, "measured_gemm"};
}

Group latency_group(const Parallel& parallel) {
  return parallel.tp.size > 1 ? parallel.tp : parallel.context.cp;
}

VerdictInputs probe_machine(Rank& rank, const Group& group) {
  constexpr std::int64_t bytes = std::int64_t{64} << 20U;
  VerdictInputs machine;
  {
    const Buffer from = rank.allocate({bytes / 4}, DType::f32, Category::workspace);
    const Buffer to = rank.allocate({bytes / 4}, DType::f32, Category::workspace);
    fill(rank, from.tensor(), 1.0F);
    fill(rank, to.tensor(), 1.0F);
    rank.synchronize();
    const double time_us = median_us(5, [&] {
      copy(rank, from.tensor(), to.tensor());
      rank.synchronize();
    });
    machine.copy_bandwidth_GBps = static_cast<double>(bytes) / time_us / 1e3;
  }
  if (group.size == 1) return machine;
  const Buffer token = rank.allocate({16}, DType::f32, Category::communication);
  fill(rank, token.tensor(), 0.0F);
  rank.synchronize();
  machine.latency_us = median_us(20, [&] {
    all_reduce(rank, token.tensor(), group, probe_lane);
    rank.synchronize();
  });
  return machine;
}

}  // namespace shardmark::bench
