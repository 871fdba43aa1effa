#include "bench/pipeline/table.hpp"

#include "bench/harness/table.hpp"
#include "bench/pipeline/report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ostream>

namespace shardmark::bench::pp {
namespace {

constexpr const char* shape_format =
    "{:<12} {:>3} {:>2} {:>4} {:>3} {:>3} {:<5} {:>6} {:>6} {:>5} {:>5} ";
constexpr const char* header_format = "{:>10} {:>8} {:>6} {:>6} {:>8} {:<5} {}\n";
constexpr const char* numbers_format = "{:>10.3f} {:>8.1f} {:>6.1f} {:>6} {:>8.3f} {:<5} {}\n";

constexpr const char* conventions =
    "# v: stages of a rank. mb: micro-batches of an iteration, batch: sequences of one of them.\n"
    "# p50: median time of one iteration on the slowest rank. exposed, comp: communication and "
    "waiting\n"
    "#   that hide behind no compute kernel, and compute kernels, in percent of one profiled "
    "iteration\n"
    "#   from barrier to barrier.\n"
    "# TFLOP/s: model FLOPs per rank (backward = 2 x forward, causal attention (s+1)/2 keys per "
    "query)\n"
    "#   and second. MFU: their share of the peak, {}.\n"
    "# [...] behind a row: what differs from the defaults and has no column.\n"
    "# comm: bytes across the link of the rank that sends most, by formula and as counted. kB, MB, "
    "GB =\n"
    "#   1e3, 1e6, 1e9 bytes.\n";

/// " [merged, blocks 5+3, batch 2]": what tells rows apart that the columns show as equal.
std::string others_of(const Case& config) {
  const LayerConfig& layer = config.layer;
  std::vector<std::string> parts;
  if (!config.model.empty()) parts.push_back(config.model);
  if (config.p2p == "merged") parts.emplace_back("merged");
  if (config.balance != "count") {
    const bool is_known = config.balance == "measured" && !layer.pipeline.blocks.empty();
    parts.push_back(is_known ? fmt::format("measured {}", fmt::join(layer.pipeline.blocks, "+"))
                             : config.balance);
  }
  if (layer.recompute != Recompute::none)
    parts.push_back(message("recompute ", name_of(layer.recompute)));
  if (layer.tied_embeddings) parts.emplace_back("tied");
  if (layer.parallel.sequence_parallel) parts.emplace_back("sp");
  return parts.empty() ? std::string{} : fmt::format(" [{}]", fmt::join(parts, ", "));
}

}  // namespace

void Table::begin(const bench::Options& options, const Transport& transport,
                  const std::vector<std::string>& notices) {
  print_launch(out_, options, transport);
  out_ << fmt::format(fmt::runtime(conventions), describe_peak(options)) << times_conventions;
  print_notices(out_, transport, notices);
  out_ << fmt::format(fmt::runtime(shape_format), "schedule", "pp", "v", "mb", "tp", "dp", "dtype",
                      "layers", "hidden", "seq", "batch")
       << fmt::format(fmt::runtime(header_format), "p50(ms)", "exposed%", "comp%", "MFU%",
                      "TFLOP/s", "check", "verdict")
       << std::flush;
}

void Table::add(const Outcome& row) {
  const Result& result = row.result;
  const LayerConfig& layer = result.config.layer;
  const Parallel& parallel = layer.parallel;
  const ModelShape& shape = layer.shape;
  out_ << fmt::format(fmt::runtime(shape_format), layer.pipeline.schedule_name, parallel.pp.size,
                      layer.pipeline.chunks, layer.pipeline.micro, parallel.tp.size,
                      parallel.dp.size, name_of(layer.dtype), shape.layers, shape.hidden, shape.seq,
                      shape.batch);
  if (const std::string missing = missing_text(result); !missing.empty())
    out_ << missing << others_of(result.config) << '\n';
  else
    add_measured(result);
  out_ << std::flush;
}

void Table::add_measured(const Result& result) {
  const TimeSplit& split = result.split;
  out_ << fmt::format(
      fmt::runtime(numbers_format), result.time.p50 / 1e3, result.exposed_comm_pct(),
      100 * split.comp_us / std::max(split.window_us, 1e-9), mfu_text(result),
      result.tflops_per_device(), check_text(result), result.verdict + others_of(result.config));
  if (result.status == Status::failed) out_ << "    FAILED: " << result.reason << '\n';
  print_times(out_, result, verbose_);
  if (!result.volume.empty())
    out_ << fmt::format("    comm: {} by formula, {} counted\n",
                        format_bytes(result.bytes_analytic), format_bytes(result.bytes_observed));
  if (verbose_) print_terms(out_, result.volume);
  print_verdict(out_, result, verbose_);
}

}  // namespace shardmark::bench::pp
