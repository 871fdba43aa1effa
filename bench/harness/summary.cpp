#include "bench/harness/summary.hpp"

#include "bench/harness/fit.hpp"

#include <fmt/format.h>

#include <map>
#include <ostream>

namespace shardmark::bench {

void Summary::finish(bool complete) {
  const std::vector<ShapeSummary> shapes = summarize_shapes(results_);
  if (shapes.empty()) return;
  out_ << fmt::format("\nSummary{}\n", complete ? "" : " of the rows before the interruption");
  for (const ShapeSummary& shape : shapes)
    out_ << fmt::format(
        "  {}\n    fastest: tp {} ({:.3f} ms); highest MFU: tp {} ({:.1f} %)\n    {}\n",
        shape.shape, shape.fastest_tp, shape.fastest_us / 1e3, shape.best_mfu_tp,
        shape.best_mfu_pct, shape.crossover);
  print_fits();
  out_ << std::flush;
}

void Summary::print_fits() const {
  std::map<DType, std::vector<Result>> by_dtype;
  for (const Result& result : results_) by_dtype[result.config.layer.dtype].push_back(result);
  for (const auto& [dtype, rows] : by_dtype) {
    const Fit fit = fit_cost_model(rows);
    if (!fit.model) {
      out_ << fmt::format("  cost model, {}: {}\n", name_of(dtype), fit.reason);
      continue;
    }
    const CostModel& model = *fit.model;
    out_ << fmt::format(
        "  cost model, {}, {} rows: T = FLOPs / {:.4g} TFLOP/s + bytes / {} + {:.1f} us\n"
        "    (FLOPs that one rank executes, bytes across its link); error: median {:.1f} %, worst "
        "{:.1f} %\n",
        name_of(dtype), model.rows, model.rate_tflops,
        model.has_bandwidth ? fmt::format("{:.3g} GB/s", model.bandwidth_GBps)
                            : "(bandwidth not resolved)",
        model.alpha_us, model.median_error_pct, model.worst_error_pct);
  }
}

}  // namespace shardmark::bench
