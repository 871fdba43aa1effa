#include "bench/harness/table.hpp"

#include "bench/harness/build_info.hpp"
#include "bench/harness/sweep.hpp"
#include "core/launch.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <ostream>

namespace shardmark::bench {
namespace {

constexpr const char* header_format =
    "{:<13} {:<5} {:<5} {:>3} {:<3} {:<3} {:>6} {:>6} {:>5} {:>10} {:>8} {:>6} {:>6} {:>8} {:>8} "
    "{:<7} {}\n";
constexpr const char* shape_format = "{:<13} {:<5} {:<5} {:>3} {:<3} {:<3} {:>6} {:>6} {:>5} ";
constexpr const char* numbers_format =
    "{:>10.3f} {:>8.1f} {:>6.1f} {:>6} {:>8.3f} {:>8} {:<7} {}\n";

constexpr const char* conventions =
    "# p50: median time of one iteration on the slowest rank. exposed, comp: communication that\n"
    "#   hides behind no compute kernel, and compute kernels, in percent of one profiled "
    "iteration\n"
    "#   from barrier to barrier.\n"
    "# TFLOP/s: model FLOPs per rank (backward = 2 x forward, recomputation excluded, tokens "
    "counted\n"
    "#   once, causal attention (s+1)/2 keys per query) and second. MFU: their share of the peak,\n"
    "#   {}.\n"
    "# speedup: over tp 1 of the same shape in this run. comm: bytes across one rank's link under "
    "a\n"
    "#   ring algorithm, by formula and as counted. kB, MB, GB = 1e3, 1e6, 1e9 bytes.\n";

const char* on_off(bool value) { return value ? "on" : "off"; }

}  // namespace

std::string_view check_text(const Result& result) {
  if (result.check_mode == CheckMode::off) return "off";
  return result.check.pass ? "pass" : "FAIL";
}

std::string missing_text(const Result& result) {
  if (result.status == Status::skipped) return "skipped: " + result.reason;
  if (result.status == Status::failed && result.time.p50 <= 0) return "FAILED: " + result.reason;
  return {};
}

void print_terms(std::ostream& out, const std::vector<VolumeLine>& volume) {
  for (const VolumeLine& line : volume)
    out << fmt::format("      {:<60} {:>10} = {}\n", line.what, format_bytes(line.bytes),
                       line.formula);
}

void print_verdict(std::ostream& out, const Result& result, bool always) {
  if (always || result.verdict != "compute_bound")
    out << "    " << result.verdict << ": " << result.verdict_reason << '\n';
}

void print_launch(std::ostream& out, const Options& options, const Transport& transport) {
  if (options.machine) {
    out << fmt::format("# {}: predicted, nothing was run\n#   machine {}: {}\n", version_text(),
                       options.machine->name, options.machine->about);
    return;
  }
  out << fmt::format("# {}: {} rank{} ({}), {} thread{} each\n", version_text(), transport.size(),
                     transport.size() == 1 ? "" : "s", transport.name(),
                     options.runner.threads_per_rank,
                     options.runner.threads_per_rank == 1 ? "" : "s");
  const std::string map = describe(transport.endpoints());
  for (std::size_t first = 0; first < map.size();) {
    const std::size_t end = map.find('\n', first);
    out << "#   " << map.substr(first, end - first) << '\n';
    first = end + 1;
  }
}

void print_notices(std::ostream& out, const Transport& transport,
                   const std::vector<std::string>& notices) {
  if (transport.wait_policy().yield)
    out << "# oversubscribed: more compute threads than cores, so ranks take turns; do not compare "
           "times\n";
  for (const std::string& notice : notices) out << "# " << notice << '\n';
}

std::string mfu_text(const Result& result) {
  const double mfu_pct = result.mfu_causal_pct();
  return std::isnan(mfu_pct) ? "-" : fmt::format("{:.1f}", mfu_pct);
}

std::string describe_peak(const Options& options) {
  if (options.runner.peak_tflops > 0)
    return fmt::format("given as {} TFLOP/s", options.runner.peak_tflops);
  const EngineOptions& engine = options.runner.engine;
  if (!options.machine && engine.backend == BackendKind::cuda)
    return engine.peak == PeakKind::measured ? "the best matrix product of a search on this GPU"
                                             : "that of the GPU's data sheet";
  if (!options.machine) return "the best matrix product measured between the samples of the row";
  std::string peaks;
  for (const auto& [dtype, peak] : options.machine->peaks_tflops)
    peaks += fmt::format("{}{} {:.4g}", peaks.empty() ? "" : ", ", dtype, peak.value);
  return fmt::format("{} TFLOP/s in the machine file", peaks);
}

void Table::begin(const Options& options, const Transport& transport,
                  const std::vector<std::string>& notices) {
  print_launch(out_, options, transport);
  out_ << fmt::format(fmt::runtime(conventions), describe_peak(options));
  print_notices(out_, transport, notices);
  out_ << fmt::format(fmt::runtime(header_format), "block", "phase", "dtype", "tp", "sp", "ovl",
                      "hidden", "seq", "batch", "p50(ms)", "exposed%", "comp%", "MFU%", "TFLOP/s",
                      "speedup", "check", "verdict")
       << std::flush;
}

void Table::add(const Outcome& row) {
  const Result& result = row.result;
  const LayerConfig& layer = result.config.layer;
  out_ << fmt::format(fmt::runtime(shape_format), name_of(layer.block),
                      name_of(result.config.phase), name_of(layer.dtype), result.tp(),
                      on_off(layer.parallel.sequence_parallel), on_off(layer.parallel.overlap),
                      layer.shape.hidden, layer.shape.seq, layer.shape.batch);
  if (const std::string missing = missing_text(result); !missing.empty()) {
    out_ << missing << std::endl;
    return;
  }
  if (result.tp() == 1) serial_us_[shape_key(result.config)] = result.time.p50;
  const TimeSplit& split = result.split;
  out_ << fmt::format(
      fmt::runtime(numbers_format), result.time.p50 / 1e3, result.exposed_comm_pct(),
      split.window_us > 0 ? 100 * split.comp_us / split.window_us : 0.0, mfu_text(result),
      result.tflops_per_device(), speedup(result), check_text(result), result.verdict);
  if (result.status == Status::failed) out_ << "    FAILED: " << result.reason << '\n';
  if (!result.volume.empty())
    out_ << fmt::format("    comm/{}: {}{}: {} by formula, {} counted\n",
                        name_of(result.config.phase), count_collectives(result.volume),
                        layer.parallel.chunks > 1
                            ? fmt::format(", those of tokens in {} chunks", layer.parallel.chunks)
                            : "",
                        format_bytes(result.bytes_analytic), format_bytes(result.bytes_observed));
  if (verbose_ && !result.volume.empty()) {
    print_terms(out_, result.volume);
    out_ << fmt::format("      t = {}, T = {} tokens, h = {}, ffn = {}, e = {} bytes\n",
                        result.tp(), layer.shape.tokens(), layer.shape.hidden, layer.shape.ffn,
                        size_of(layer.dtype));
  }
  print_verdict(out_, result, verbose_);
  out_ << std::flush;
}

std::string Table::speedup(const Result& result) const {
  const auto serial = serial_us_.find(shape_key(result.config));
  if (serial == serial_us_.end() || result.time.p50 <= 0) return "-";
  return fmt::format("{:.2f}x", serial->second / result.time.p50);
}

std::string count_collectives(const std::vector<VolumeLine>& volume) {
  static constexpr std::array<std::string_view, 2> directions{"forward", "backward"};
  static constexpr std::array<std::string_view, 5> kinds{"all-reduce", "all-gather",
                                                         "reduce-scatter", "all-to-all", "ring"};
  std::string text;
  for (const std::string_view direction : directions) {
    std::string counts;
    for (const std::string_view kind : kinds) {
      const std::string wanted = fmt::format("{}: {}", direction, kind);
      int count = 0;
      for (const VolumeLine& line : volume) count += line.what.find(wanted) != std::string::npos;
      if (count > 0) counts += fmt::format("{}{} {}", counts.empty() ? "" : " + ", count, kind);
    }
    if (!counts.empty())
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", direction, counts);
  }
  return text;
}

std::string format_bytes(double bytes) {
  static constexpr std::array<const char*, 5> units{"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < units.size()) {
    bytes /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 2, units[unit]);
}

}  // namespace shardmark::bench
