#include "bench/collectives/overlap.hpp"

#include "bench/collectives/clocks.hpp"
#include "bench/harness/statistics.hpp"
#include "core/functions.hpp"
#include "profiler/host_collector.hpp"

#include <algorithm>

namespace shardmark::bench::collectives {
namespace {

constexpr int rounds = 15;

/// What one run took on the slowest rank, microseconds: wall clock, and the kernels' own time.
struct Times {
  double wall_us{0}, compute_us{0}, communication_us{0};
};

class Trial {
 public:
  Trial(const Runnable& runnable, const Options& options, Workspace& workspace,
        Transport& transport)
      : runnable_{runnable},
        workspace_{workspace},
        transport_{transport},
        a_{allocate(options.matmul[0], options.matmul[2])},
        b_{allocate(options.matmul[2], options.matmul[1])},
        c_{allocate(options.matmul[0], options.matmul[1])} {
    for (const Buffer* buffer : {&a_, &b_, &c_}) fill(workspace.rank(), buffer->tensor(), 0.5F);
    workspace.rank().synchronize();
    workspace.backend().set_progress_thread(options.progress_thread);
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;
  ~Trial() { workspace_.backend().set_progress_thread(false); }

  /// The call goes first, so that it is under way while the product runs.
  Times run(bool collective, bool product) {
    collector_.clear();
    transport_.barrier();
    workspace_.backend().set_kernel_sink(&collector_);
    Rank& rank = workspace_.rank();
    const std::int64_t begin = now_ns();
    if (collective)
      for (const Op& op : runnable_.ops()) rank.submit(op, Workspace::lane);
    if (product) matmul(rank, a_.tensor(), b_.tensor(), c_.tensor());
    rank.synchronize();
    const double wall_us = static_cast<double>(now_ns() - begin) / 1e3;
    workspace_.backend().set_kernel_sink(nullptr);
    Times mine{wall_us, 0, 0};
    std::int64_t first = 0, last = 0;
    for (const KernelRecord& record : collector_.records()) {
      if (record.lane == Lane::compute) {
        mine.compute_us += static_cast<double>(record.end_ns - record.start_ns) / 1e3;
      } else {
        first = first == 0 ? record.start_ns : std::min(first, record.start_ns);
        last = std::max(last, record.end_ns);
      }
    }
    mine.communication_us = static_cast<double>(last - first) / 1e3;
    return {transport_.maximum(mine.wall_us), transport_.maximum(mine.compute_us),
            transport_.maximum(mine.communication_us)};
  }

 private:
  [[nodiscard]] Buffer allocate(std::int64_t rows, std::int64_t cols) {
    return workspace_.rank().allocate({rows, cols}, DType::f32, Category::workspace);
  }

  const Runnable& runnable_;
  Workspace& workspace_;
  Transport& transport_;
  Buffer a_, b_, c_;
  HostCollector collector_;
};

double median_of(const std::vector<Times>& all, double Times::*member) {
  std::vector<double> values;
  for (const Times& times : all) values.push_back(times.*member);
  return median(values);
}

}  // namespace

void measure_overlap(Row& row, const Runnable& runnable, const Options& options,
                     Workspace& workspace, Transport& transport) {
  Trial trial{runnable, options, workspace, transport};
  std::vector<Times> product, collective, together;
  (void)trial.run(true, true);
  for (int round = 0; round < rounds; ++round) {
    product.push_back(trial.run(false, true));
    collective.push_back(trial.run(true, false));
    together.push_back(trial.run(true, true));
  }
  Overlap& result = row.overlap;
  row.has_overlap = true;
  result.progress_thread = options.progress_thread;
  result.matmul_us = median_of(product, &Times::wall_us);
  result.collective_us = median_of(collective, &Times::wall_us);
  result.together_us = median_of(together, &Times::wall_us);
  const auto tax_pct = [](double with, double alone) {
    return alone > 0 ? 100 * (with / alone - 1) : 0;
  };
  result.comp_tax_pct =
      tax_pct(median_of(together, &Times::compute_us), median_of(product, &Times::compute_us));
  result.comm_tax_pct = tax_pct(median_of(together, &Times::communication_us),
                                median_of(collective, &Times::communication_us));
  result.efficiency = (result.matmul_us + result.collective_us - result.together_us) /
                      std::min(result.matmul_us, result.collective_us);
}

}  // namespace shardmark::bench::collectives
