#include "bench/harness/summary.hpp"

#include <fmt/format.h>

#include <ostream>

namespace shardmark::bench {
namespace {

void print_fit(std::ostream& out, DType dtype, const Fit& fit) {
  if (!fit.model) {
    out << fmt::format("  cost model, {}: {}\n", name_of(dtype), fit.reason);
    return;
  }
  const CostModel& model = *fit.model;
  out << fmt::format(
      "  cost model, {}, {} rows: T = FLOPs / {:.4g} TFLOP/s + bytes / {} + {:.1f} us\n"
      "    (FLOPs that one rank executes, bytes across its link); error: median {:.1f} %, worst "
      "{:.1f} %\n",
      name_of(dtype), model.rows, model.rate_tflops,
      model.has_bandwidth ? fmt::format("{:.3g} GB/s", model.bandwidth_GBps)
                          : "(bandwidth not resolved)",
      model.alpha_us, model.median_error_pct, model.worst_error_pct);
}

}  // namespace

SweepSummary summarize(std::span<const Result> results) {
  SweepSummary summary;
  summary.shapes = summarize_shapes(results);
  std::map<DType, std::vector<Result>> by_dtype;
  for (const Result& result : results)
    if (result.status == Status::ok) by_dtype[result.config.layer.dtype].push_back(result);
  for (const auto& [dtype, rows] : by_dtype) summary.fits[dtype] = fit_cost_model(rows);
  return summary;
}

void SummaryText::finish(bool complete) {
  const SweepSummary summary = summarize(results_);
  if (summary.shapes.empty()) return;
  out_ << fmt::format("\nSummary{}\n", complete ? "" : " of the rows before the interruption");
  if (num_earlier_ > 0)
    out_ << fmt::format("  (of the rows measured now; the {} from before are only in the files)\n",
                        num_earlier_);
  for (const ShapeSummary& shape : summary.shapes)
    out_ << fmt::format("  {}\n    fastest: tp {} ({:.3f} ms); highest MFU: {}\n    {}\n",
                        shape.shape, shape.fastest_tp, shape.fastest_us / 1e3,
                        shape.best_mfu_pct <= 0 ? "no peak is known"
                                                : fmt::format("tp {} ({:.1f} %)", shape.best_mfu_tp,
                                                              shape.best_mfu_pct),
                        shape.crossover);
  for (const auto& [dtype, fit] : summary.fits) print_fit(out_, dtype, fit);
  out_ << std::flush;
}

}  // namespace shardmark::bench
