#include "bench/pipeline/report.hpp"

#include "bench/harness/table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <span>
#include <vector>

namespace shardmark::bench::pp {
namespace {

double share_pct(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

/// As it will be printed with so many digits, but never "-0.0".
double rounded(double value, int digits) {
  const double scale = std::pow(10, digits);
  return std::round(scale * value) / scale + 0.0;
}

void print_summary(std::ostream& out, const Result& result) {
  const PipelineTimes& times = *result.pipeline;
  const PipelineSplit& mean = times.measured.mean;
  const auto pct = [](double part, double whole = 1) { return rounded(share_pct(part, whole), 1); };
  const auto share = [&](double part_us) { return pct(part_us, mean.window_us); };
  out << fmt::format(
      "    bubble: {:.1f} % of {:.3f} ms ({:.1f} % of ideal): wait {:.1f}, blocked {:.1f}, start "
      "{:.1f}, drain {:.1f}, unexplained {:.1f} %\n",
      pct(times.measured.of_total), mean.window_us / 1e3, pct(times.measured.of_ideal),
      share(mean.wait_us), share(mean.blocked_us), share(mean.start_us), share(mean.drain_us),
      share(mean.unexplained_us));
  if (result.time.samples == 0) return;  // a prediction is its own replay
  out << fmt::format(
      "    theory: {:.1f} % ({:.1f} % of ideal), step {:.3f} ms ({:+.1f} %); {} iterations\n",
      pct(times.replayed.of_total), pct(times.replayed.of_ideal),
      times.replayed.mean.window_us / 1e3, rounded(times.replay_error_pct, 1), times.iterations);
}

/// Where the ranks held something else than the schedule claims.
void print_difference(std::ostream& out, std::span<const InFlight> places) {
  const auto equal = [](const InFlight& place) { return place.measured == place.claimed; };
  if (std::ranges::all_of(places, equal)) return;
  const auto listed = [&](int InFlight::*number) {
    std::vector<int> numbers;
    for (const InFlight& place : places) numbers.push_back(place.*number);
    return fmt::format("{}", fmt::join(numbers, "+"));
  };
  out << fmt::format("    in flight: {} at most, by the schedule {}\n", listed(&InFlight::measured),
                     listed(&InFlight::claimed));
}

void print_ranks(std::ostream& out, const Result& result, std::span<const InFlight> places) {
  constexpr const char* head_format =
      "      {:>4} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} "
      "{:>9} {:>5} {:>11} {:>9}\n";
  constexpr const char* row_format =
      "      {:>4} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} "
      "{:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>7.1f} {:>9} {:>5} {:>11} {:>9}\n";
  const PipelineTimes& times = *result.pipeline;
  out << fmt::format(fmt::runtime(head_format), "rank", "F(ms)", "B", "I", "W", "other", "coll",
                     "transfer", "wait", "blocked", "start", "drain", "unexpl", "bubble%",
                     "in-flight", "claim", "activations", "claim");
  for (std::size_t rank = 0; rank < times.ranks.size(); ++rank) {
    const PipelineSplit& split = times.ranks[rank];
    const auto ms = [](double time_us) { return rounded(time_us / 1e3, 3); };
    const auto number = [&](bool is_known, const auto& value) {
      return is_known ? fmt::format("{}", value()) : std::string{"-"};
    };
    const bool has_work = rank < result.work.size();
    out << fmt::format(
        fmt::runtime(row_format), rank, ms(split.forward_us), ms(split.backward_us),
        ms(split.input_us), ms(split.weight_us), ms(split.other_us), ms(split.collective_us),
        ms(split.exposed_transfer_us), ms(split.wait_us), ms(split.blocked_us), ms(split.start_us),
        ms(split.drain_us), ms(split.unexplained_us),
        rounded(share_pct(split.bubble_us, split.window_us), 1),
        number(!places.empty(), [&] { return times.peak_in_flight[rank]; }),
        number(!places.empty(),
               [&] { return places[pipeline_place(result.config.layer.parallel, rank)].claimed; }),
        number(has_work, [&] { return format_bytes(result.work[rank].activation_bytes); }),
        number(has_work, [&] { return format_bytes(result.work[rank].activation_claim_bytes); }));
  }
}

}  // namespace

const char* const times_conventions =
    "# bubble: of the window common to all ranks, without compute, own exposed transfer and "
    "exposed\n"
    "#   collectives; mean over ranks. It and each of its parts are medians of their own over the\n"
    "#   profiled iterations, and need not add up. wait: in a receive before its sender comes;\n"
    "#   blocked: in a send before its receiver comes; start: before the first op; drain: last op "
    "to\n"
    "#   closing barrier.\n"
    "# theory (measured rows): the same operations replayed with the times they took, iteration "
    "by\n"
    "#   iteration.\n"
    "# in-flight (--verbose): micro-batches in a stage at once, from F's first kernel to the last "
    "of B "
    "or W;\n"
    "#   activations: allocated; claim: of both, what the schedule says.\n";

void print_times(std::ostream& out, const Result& result, bool verbose) {
  if (!result.pipeline) return;
  const std::vector<InFlight> places = in_flight(*result.pipeline, result.config.layer);
  print_summary(out, result);
  print_difference(out, places);
  if (verbose) print_ranks(out, result, places);
}

}  // namespace shardmark::bench::pp
