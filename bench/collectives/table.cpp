#include "bench/collectives/table.hpp"

#include "bench/harness/build_info.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ostream>

namespace shardmark::bench::collectives {
namespace {

constexpr const char* conventions_text =
    "# {}: collectives in nccl-tests' columns, then our own\n"
    "# size: base 2 (K, M, G = 1024), the larger buffer of a rank. algbw, busbw: GB = 1e9 bytes "
    "per "
    "second.\n"
    "# time: median over samples of {} time of one call (-a {}; nccl-tests: average).\n"
    "# busbw = algbw x factor of the group's size ({} ranks), no reduction in the network "
    "assumed.\n"
    "# eff: busbw in % of a copy of the same size by all ranks at once.\n";

const char* perf_name(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return "all_reduce_perf";
    case Collective::all_gather:
      return "all_gather_perf";
    case Collective::reduce_scatter:
      return "reduce_scatter_perf";
    case Collective::all_to_all:
      return "alltoall_perf";
    case Collective::all_to_all_v:
      return "alltoallv_perf";
    case Collective::broadcast:
      return "broadcast_perf";
    case Collective::reduce:
      return "reduce_perf";
    case Collective::gather:
      return "gather_perf";
    case Collective::scatter:
      return "scatter_perf";
    case Collective::send_recv:
      return "sendrecv_perf";
    case Collective::barrier:
      return "barrier_perf";
  }
  return "";
}

/// nccl-tests drops decimals as times grow.
std::string time_text(double time_us) {
  if (time_us >= 1e4) return fmt::format("{:7.0f}", time_us);
  if (time_us >= 100) return fmt::format("{:7.1f}", time_us);
  return fmt::format("{:7.2f}", time_us);
}

std::string percentiles_text(const TimeSummary& time) {
  return fmt::format("  {:>9.2f} {:>9.2f} {:>9.2f} {:>6.1f}", time.p10, time.p95, time.p99,
                     time.cv_pct);
}

std::string explain_overlap(const Overlap& overlap) {
  return fmt::format(
      " overlap {:.2f} of the shorter (matmul {:.1f}, collective {:.1f}, together {:.1f} us; tax "
      "{:.0f} % on compute, {:.0f} % on communication; progress {})",
      overlap.efficiency, overlap.matmul_us, overlap.collective_us, overlap.together_us,
      overlap.comp_tax_pct, overlap.comm_tax_pct, overlap.progress_thread ? "thread" : "poll");
}

std::string explain_skew(const Row& row, const Wait& wait) {
  for (const Wait& before : row.waits_unskewed)
    if (before.rank == wait.rank)
      return fmt::format(
          "#   skew {:g} us: rank {} waits {:.1f} us instead of {:.1f} ({:+.1f}), transfer {:.1f} "
          "instead of {:.1f} ({:+.1f})\n",
          row.skew_us, wait.rank, wait.wait_us, before.wait_us, wait.wait_us - before.wait_us,
          wait.transfer_us, before.transfer_us, wait.transfer_us - before.transfer_us);
  return {};
}

/// What the columns do not say about a row.
std::string explain(const Row& row, std::size_t width) {
  const Wait* wait = row.longest_wait();
  std::string line = fmt::format(
      "# {:12} {:<{}} {:<5} {:10.2f} {:>11} {:6.1f} {:>10} {:>11} {}", row.point.size_bytes,
      row.point.algorithm, width, row.point.in_place ? "in" : "out", row.time.p50,
      row.expected_us < 0 ? "-" : fmt::format("{:.2f}", row.expected_us), row.efficiency_pct(),
      wait == nullptr ? "-" : fmt::format("{:.2f}", wait->wait_us),
      wait == nullptr ? "-" : fmt::format("{:.2f}", wait->transfer_us), row.verdict);
  constexpr int enough_samples = 10;
  if (row.alone_us > 0) {
    line += fmt::format(" contention {:.2f} (alone {:.2f} us)", row.contention(), row.alone_us);
    if (row.time.samples < enough_samples)
      line += fmt::format(", of {} samples only: noise", row.time.samples);
    else if (row.contention() < 1)
      line += ", slower alone than together: noise, or ranks that share cores";
  }
  if (row.has_overlap) line += explain_overlap(row.overlap);
  line += '\n';
  return wait == nullptr ? line : line + explain_skew(row, *wait);
}

}  // namespace

void Table::conventions(const std::vector<std::string>& notices) {
  constexpr std::array<const char*, 4> whose{"rank 0's", "the ranks' average", "the fastest rank's",
                                             "the slowest rank's"};
  const auto scope = static_cast<std::size_t>(options_.scope);
  out_ << fmt::format(fmt::runtime(conventions_text), version_text(), whose[scope], scope,
                      options_.groups ? "not the world's" : "all");
  for (const std::string& notice : notices) note(notice);
}

void Table::note(const std::string& notice) { out_ << "# " << notice << '\n' << std::flush; }

void Table::begin(Collective collective, const std::vector<Endpoint>& endpoints,
                  std::span<const int> groups, const std::string& device) {
  busbw_sum_ = 0;
  busbw_count_ = 0;
  num_wrong_ = 0;
  const std::string step = options_.step_factor > 0
                               ? fmt::format("{:g}(factor)", options_.step_factor)
                               : fmt::format("{}(bytes)", options_.step_bytes);
  out_ << fmt::format("# Collective test starting: {}\n", perf_name(collective));
  out_ << fmt::format(
      "# nThread 1 nGpus 1 minBytes {} maxBytes {} step: {} warmup iters: {} iters: {} agg iters: "
      "{} validation: {} graph: 0\n#\n# Using devices\n",
      options_.min_bytes, options_.max_bytes, step, options_.warmup,
      options_.iterations > 0 ? options_.iterations : options_.min_samples, options_.aggregate,
      options_.checks > 0 ? 1 : 0);
  for (std::size_t rank = 0; rank < endpoints.size(); ++rank)
    out_ << fmt::format("#  Rank {:2} Group {:2} Pid {:6} on {:>10} device {:2} [0x00] {}\n", rank,
                        groups[rank], endpoints[rank].pid, endpoints[rank].host, 0, device);
  out_
      << "#\n"
         "#                                                              out-of-place             "
         "          in-place          \n"
         "#       size         count      type   redop    root     time   algbw   busbw #wrong     "
         "time   algbw   busbw #wrong";
  out_ << "  algorithm";
  if (options_.percentiles)
    out_ << "            p10(us)   p95(us)   p99(us)  cv(%)  in:p10(us) in:p95(us) in:p99(us) "
            "in:cv(%)";
  out_ << "\n#        (B)    (elements)                               (us)  (GB/s)  (GB/s)         "
          "   (us)  (GB/s)  (GB/s)       \n"
       << std::flush;
}

std::string Table::half(const Row* row) const {
  if (row == nullptr || row->time.samples == 0)
    return fmt::format("  {:>7}  {:>6}  {:>6}  {:>5}", "N/A", "N/A", "N/A", "N/A");
  return fmt::format("  {}  {:6.2f}  {:6.2f}  {:>5}", time_text(row->time.p50), row->algbw_GBps(),
                     row->busbw_GBps(),
                     row->checked ? fmt::format("{}", row->num_wrong) : std::string{"N/A"});
}

void Table::add(const Row& out_of_place, const Row* in_place) {
  const Point& point = out_of_place.point;
  const CollectiveFacts& facts = facts_of(point.collective);
  std::string line = fmt::format(
      "{:12}  {:12}  {:>8}  {:>6}  {:>6}", point.size_bytes, point.count, nccl_name_of(point.dtype),
      facts.has_reduction ? name_of(point.reduction) : "none", facts.has_root ? point.root : -1);
  line += half(&out_of_place) + half(in_place);
  std::string name = point.algorithm;
  if (!out_of_place.chosen.empty()) name += ':' + out_of_place.chosen;
  if (point.pattern != Pattern::none) name += fmt::format("/{}", name_of(point.pattern));
  line += "  " + name;
  if (options_.percentiles) {
    line += fmt::format("{:{}}", "", 18 - std::min<std::size_t>(18, name.size()));
    line += percentiles_text(out_of_place.time);
    if (in_place != nullptr) line += percentiles_text(in_place->time);
  }
  out_ << line << '\n';
  for (const Row* row : {&out_of_place, in_place}) {
    if (row == nullptr) continue;
    busbw_sum_ += row->busbw_GBps();
    ++busbw_count_;
    num_wrong_ += row->num_wrong;
    if (row->status == Status::failed)
      out_ << fmt::format("# FAILED: {}: {}\n", describe(row->point), row->reason);
  }
  out_ << std::flush;
}

void Table::skip(const Row& row, std::int64_t last_bytes) {
  const std::string more =
      last_bytes > row.point.size_bytes ? fmt::format(" to {} B", last_bytes) : std::string{};
  out_ << fmt::format("# skipped: {}{}: {}\n", describe(row.point), more, row.reason) << std::flush;
}

void Table::conclude(std::span<const Row> rows, const std::vector<std::string>& fits) {
  for (const std::string& fit : fits) explanation_ += fmt::format("# {}\n", fit);
  bool any = false;
  std::size_t width = std::string_view{"algorithm"}.size();
  for (const Row& row : rows) width = std::max(width, row.point.algorithm.size());
  for (const Row& row : rows) {
    if (row.time.samples == 0) continue;
    if (!any)
      explanation_ += fmt::format("# {:>12} {:<{}} {:<5} {:>10} {:>11} {:>6} {:>10} {:>11} {}\n",
                                  "size(B)", "algorithm", width, "place", "time_us", "expected_us",
                                  "eff(%)", "wait_us", "transfer_us", "verdict");
    any = true;
    explanation_ += explain(row, width);
  }
}

void Table::end() {
  out_ << fmt::format("# Out of bounds values : {} {}\n", num_wrong_,
                      num_wrong_ == 0 ? "OK" : "FAILED");
  out_ << fmt::format("# Avg bus bandwidth    : {:g} \n",
                      busbw_count_ > 0 ? busbw_sum_ / busbw_count_ : 0);
  out_ << "# (that average mixes sizes, places and algorithms: it is here for parsers, it is no "
          "result)\n"
       << explanation_ << "#\n"
       << std::flush;
  explanation_.clear();
}

}  // namespace shardmark::bench::collectives
