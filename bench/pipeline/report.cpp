#include "bench/pipeline/report.hpp"

#include "bench/harness/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>

namespace shardmark::bench::pp {
namespace {

double share_pct(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

void print_summary(std::ostream& out, const PipelineTimes& times) {
  const PipelineSplit& mean = times.measured.mean;
  const auto share = [&](double part_us) { return share_pct(part_us, mean.window_us); };
  out << fmt::format(
      "    bubble: {:.1f} % of {:.3f} ms ({:.1f} % of ideal): wait {:.1f}, blocked {:.1f}, start "
      "{:.1f}, drain {:.1f}, unexplained {:.1f} %\n"
      "    theory: {:.1f} % ({:.1f} % of ideal), step {:.3f} ms ({:+.1f} %); {} iterations\n",
      100 * times.measured.of_total, mean.window_us / 1e3, 100 * times.measured.of_ideal,
      share(mean.wait_us), share(mean.blocked_us), share(mean.start_us), share(mean.drain_us),
      share(mean.unexplained_us), 100 * times.replayed.of_total, 100 * times.replayed.of_ideal,
      times.replayed.mean.window_us / 1e3, times.replay_error_pct, times.iterations);
}

/// Rank 5 of tp 2 x pp 2 x dp 2 is rank 0 of its pipeline. A predicted row has one pipeline only.
std::size_t pipeline_rank(const Parallel& parallel, std::size_t rank, std::size_t num_ranks) {
  const auto size = static_cast<std::size_t>(parallel.pp.size);
  const auto inner = static_cast<std::size_t>(parallel.num_model_ranks()) / size;
  return rank / std::min(inner, num_ranks / size) % size;
}

void print_ranks(std::ostream& out, const Result& result) {
  constexpr const char* head_format =
      "      {:>4} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>9} "
      "{:>11}\n";
  constexpr const char* row_format =
      "      {:>4} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} "
      "{:>9.3f} {:>9.3f} {:>9.3f} {:>7.1f} {:>9} {:>11}\n";
  const LayerConfig& layer = result.config.layer;
  const std::vector<int> peaks = peak_in_flight(*layer.pipeline.schedule);
  out << fmt::format(fmt::runtime(head_format), "rank", "F(ms)", "B", "I", "W", "other", "coll",
                     "transfer", "wait", "blocked", "drain", "unexpl", "bubble%", "in-flight",
                     "activations");
  for (std::size_t rank = 0; rank < result.pipeline->ranks.size(); ++rank) {
    const PipelineSplit& split = result.pipeline->ranks[rank];
    const auto ms = [](double time_us) { return time_us / 1e3; };
    out << fmt::format(
        fmt::runtime(row_format), rank, ms(split.forward_us), ms(split.backward_us),
        ms(split.input_us), ms(split.weight_us), ms(split.other_us), ms(split.collective_us),
        ms(split.exposed_transfer_us), ms(split.wait_us), ms(split.blocked_us), ms(split.drain_us),
        ms(split.unexplained_us), share_pct(split.bubble_us, split.window_us),
        peaks[pipeline_rank(layer.parallel, rank, result.pipeline->ranks.size())],
        rank < result.work.size() ? format_bytes(result.work[rank].activation_bytes) : "-");
  }
}

}  // namespace

const char* const times_conventions =
    "# bubble: of the window common to all ranks, without compute, own exposed transfer and "
    "exposed\n"
    "#   collectives; mean over ranks, median over profiled iterations. wait: in a receive before "
    "its\n"
    "#   sender comes; blocked: in a send before its receiver comes; drain: last op to closing "
    "barrier.\n"
    "# theory: the same operations replayed with the times they took, iteration by iteration.\n";

void print_times(std::ostream& out, const Result& result, bool verbose) {
  if (!result.pipeline) return;
  print_summary(out, *result.pipeline);
  if (verbose) print_ranks(out, result);
}

}  // namespace shardmark::bench::pp
