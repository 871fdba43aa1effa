#include "bench/context/table.hpp"

#include "bench/harness/sweep.hpp"
#include "bench/harness/table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ostream>

namespace shardmark::bench::context {
namespace {

constexpr const char* shape_format =
    "{:<14} {:<5} {:<5} {:<10} {:<10} {:>3} {:>3} {:<3} {:>5} {:>5} {:>7} {:>5} ";
constexpr const char* header_format = "{:>10} {:>8} {:>6} {:>7} {:>7} {:>8} {:>6} {:<7} {}\n";
constexpr const char* numbers_format =
    "{:>10.3f} {:>8.1f} {:>6.1f} {:>7.2f} {:>7} {:>8} {:>6} {:<7} {}\n";

constexpr const char* conventions =
    "# p50: median time of one iteration on the slowest rank. exposed, comp: exchange that hides "
    "behind\n"
    "#   no compute kernel, and compute kernels, in percent of one profiled iteration from barrier "
    "to\n"
    "#   barrier.\n"
    "# balance: visible work of the busiest rank over the mean; ceiling: cp / balance, the "
    "speed-up that\n"
    "#   leaves. speedup: over cp 1 of the same shape and tp in this run.\n"
    "# MFU: model FLOPs (only pairs that the masks leave, backward = 2 x forward) per rank and "
    "second,\n"
    "#   of the peak: {}.\n"
    "# [...] behind a row: what differs from the defaults and has no column.\n"
    "# comm: bytes across the link of the rank that sends most, by formula, by the recorded\n"
    "#   operations, and as counted. kB, MB, GB = 1e3, 1e6, 1e9 bytes.\n";

std::string kind_of(const ContextParallel& context) {
  if (!context.is_split()) return "-";
  if (context.kind != ContextKind::hybrid) return std::string{name_of(context.kind)};
  return fmt::format("hybrid {}{}", context.ulysses, context.ulysses_outer ? "o" : "");
}

/// " [sp, window 512, full]": what tells rows apart that the columns show as equal.
std::string others_of(const LayerConfig& layer) {
  const ModelShape& shape = layer.shape;
  std::vector<std::string> parts;
  if (layer.parallel.sequence_parallel) parts.emplace_back("sp");
  if (shape.window > 0) parts.push_back(fmt::format("window {}", shape.window));
  if (!shape.causal) parts.emplace_back("full");
  if (!shape.seqlens.empty())
    parts.push_back(fmt::format("packed {}", fmt::join(shape.seqlens, "+")));
  if (shape.head_dim != 128) parts.push_back(fmt::format("head-dim {}", shape.head_dim));
  if (layer.block != BlockKind::attention_core) {
    if (shape.hidden != shape.query_width())
      parts.push_back(fmt::format("hidden {}", shape.hidden));
    if (shape.ffn != 4 * shape.hidden) parts.push_back(fmt::format("ffn {}", shape.ffn));
  }
  return parts.empty() ? std::string{} : fmt::format(" [{}]", fmt::join(parts, ", "));
}

std::string key_of(const Case& config) {
  return fmt::format("{} tp {}", shape_key(config), config.layer.parallel.tp.size);
}

}  // namespace

void Table::begin(const bench::Options& options, const Transport& transport,
                  const std::vector<std::string>& notices) {
  print_launch(out_, options, transport);
  out_ << fmt::format(fmt::runtime(conventions), describe_peak(options));
  print_notices(out_, transport, notices);
  out_ << fmt::format(fmt::runtime(shape_format), "scope", "phase", "dtype", "kind", "order", "cp",
                      "tp", "ovl", "heads", "kv", "seq", "batch")
       << fmt::format(fmt::runtime(header_format), "p50(ms)", "exposed%", "comp%", "balance",
                      "ceiling", "speedup", "MFU%", "check", "verdict")
       << std::flush;
}

void Table::add(const Outcome& row) {
  const Result& result = row.result;
  const LayerConfig& layer = result.config.layer;
  const ContextParallel& context = layer.parallel.context;
  const ModelShape& shape = layer.shape;
  out_ << fmt::format(fmt::runtime(shape_format), name_of(layer.block),
                      name_of(result.config.phase), name_of(layer.dtype), kind_of(context),
                      context.is_split() ? name_of(context.order) : "-", context.cp.size,
                      layer.parallel.tp.size, layer.parallel.overlap ? "on" : "off", shape.heads,
                      shape.kv_heads, shape.seq, shape.batch);
  if (const std::string missing = missing_text(result); !missing.empty())
    out_ << missing << others_of(layer) << '\n';
  else
    add_measured(result);
  out_ << std::flush;
}

void Table::add_measured(const Result& result) {
  if (result.cp() == 1) serial_us_[key_of(result.config)] = result.time.p50;
  const TimeSplit& split = result.split;
  out_ << fmt::format(
      fmt::runtime(numbers_format), result.time.p50 / 1e3, result.exposed_comm_pct(),
      100 * split.comp_us / std::max(split.window_us, 1e-9), result.balance(),
      fmt::format("{:.2f}x", result.speedup_ceiling()), speedup(result), mfu_text(result),
      check_text(result), result.verdict + others_of(result.config.layer));
  if (result.status == Status::failed) out_ << "    FAILED: " << result.reason << '\n';
  double planned_bytes = 0;
  for (const RankWork& rank : result.work) planned_bytes = std::max(planned_bytes, rank.bytes_plan);
  if (!result.volume.empty())
    out_ << fmt::format("    comm/{}: {}: {} by formula, {} by operations, {} counted\n",
                        name_of(result.config.phase), count_collectives(result.volume),
                        format_bytes(result.bytes_analytic), format_bytes(planned_bytes),
                        format_bytes(result.bytes_observed));
  if (verbose_) print_terms(out_, result.volume);
  print_verdict(out_, result, verbose_);
}

std::string Table::speedup(const Result& result) const {
  const auto serial = serial_us_.find(key_of(result.config));
  if (serial == serial_us_.end() || result.time.p50 <= 0) return "-";
  return fmt::format("{:.2f}x", serial->second / result.time.p50);
}

}  // namespace shardmark::bench::context
