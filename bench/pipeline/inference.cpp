#include "bench/pipeline/inference.hpp"

#include "bench/harness/sweep.hpp"
#include "bench/harness/table.hpp"
#include "core/error.hpp"
#include "layers/inference_program.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <ostream>
#include <utility>

namespace shardmark::bench::pp {
namespace {

constexpr const char* shape_format = "{:<8} {:>3} {:>2} {:>4} {:<5} {:>6} {:>6} {:>6} {:>5} ";
constexpr const char* numbers_format =
    "{:>10} {:>9} {:>9} {:>10} {:>8} {:>9} {:>6} {:>6} {:<5} {}\n";

constexpr const char* conventions =
    "# req: requests at once, of batch sequences each; they take turns. prefill runs their prompts "
    "of\n"
    "#   seq tokens, decode --tokens of each, one after another. The cache does not grow: every "
    "step sees\n"
    "#   seq cached tokens and its own.\n"
    "# p50: median time of one iteration on the slowest rank. ttft: to a request's first token, "
    "mean over\n"
    "#   requests that begin together. ms/token: from one token of a request to its next. "
    "tokens/s: "
    "of all\n"
    "#   requests (prefill: of the prompts).\n"
    "# hop: what a single request loses between stages for each message: pp messages a token, of "
    "which\n"
    "#   the last takes the token back to the first stage. cache: keys and values on a rank.\n"
    "# comp: compute kernels, in percent of one profiled iteration from barrier to barrier. MFU: "
    "FLOPs of\n"
    "#   forward, causal attention, logits of last tokens only, in percent of the peak, {}.\n"
    "# comm: bytes across the link of the rank that sends most, by formula and as counted. kB, MB, "
    "GB =\n"
    "#   1e3, 1e6, 1e9 bytes.\n";

/// What tells rows apart that the columns show as equal.
std::string others_of(const Case& config) {
  std::string text = config.model;
  if (config.balance != "count") text += (text.empty() ? "" : ", ") + config.balance;
  return text.empty() ? text : fmt::format(" [{}]", text);
}

std::string number(double value, int digits) { return fmt::format("{:.{}f}", value, digits); }

std::string requests_text(int requests) {
  return fmt::format("{} request{}", requests, requests == 1 ? "" : "s");
}

/// "per token", or what a user waits for.
std::string_view latency_name(InferenceStep step) {
  return step == InferenceStep::decode ? "per token" : "to the first token";
}

TpAgainstPp::Times times_of(const Result& result) {
  const bool decodes = result.config.layer.inference->step == InferenceStep::decode;
  return {decodes ? time_per_token_us(result) : ttft_us(result), tokens_per_s(result)};
}

/// "1, 2 and 8": the numbers of requests.
std::string tried(const std::vector<TpAgainstPp::Point>& points) {
  std::string text = message(points.front().requests);
  for (std::size_t i = 1; i < points.size(); ++i)
    text += message(i + 1 < points.size() ? ", " : " and ", points[i].requests);
  return text;
}

/// Where one of the two has more tokens/s at this number of requests and at all larger ones.
std::string throughput_text(const TpAgainstPp& comparison) {
  const auto& points = comparison.points;
  const auto pp_wins = [](const TpAgainstPp::Point& point) {
    return point.pp.tokens_per_s > point.tp.tokens_per_s;
  };
  const bool pp = pp_wins(points.back());
  auto first = points.end() - 1;
  while (first != points.begin() && pp_wins(*(first - 1)) == pp) --first;
  const auto ratio = [pp](const TpAgainstPp::Point& point) {
    return pp ? point.pp.tokens_per_s / point.tp.tokens_per_s
              : point.tp.tokens_per_s / point.pp.tokens_per_s;
  };
  std::string text = fmt::format(
      "{} {} gives {:.2f}x the tokens/s {} {}", pp ? "pp" : "tp", comparison.ranks, ratio(*first),
      points.size() == 1 ? "at" : "from", requests_text(first->requests));
  if (points.size() == 1) return text;
  text += " on";
  if (first != points.end() - 1)
    text += fmt::format(", {:.2f}x at {}", ratio(points.back()), points.back().requests);
  return text + fmt::format(" ({} were tried)", tried(points));
}

void print(std::ostream& out, const TpAgainstPp& comparison) {
  const int ranks = comparison.ranks;
  out << fmt::format("  {} {}, {} ranks\n", name_of(comparison.step), comparison.shape, ranks)
      << fmt::format("    {:>8} {:>14} {:>12} {:>14} {:>12}\n", "requests",
                     fmt::format("tp {} (ms)", ranks), "tokens/s", fmt::format("pp {} (ms)", ranks),
                     "tokens/s");
  for (const TpAgainstPp::Point& point : comparison.points)
    out << fmt::format("    {:>8} {:>14.3f} {:>12.1f} {:>14.3f} {:>12.1f}\n", point.requests,
                       point.tp.latency_us / 1e3, point.tp.tokens_per_s, point.pp.latency_us / 1e3,
                       point.pp.tokens_per_s);
  out << "    " << conclusion(comparison) << '\n';
}

}  // namespace

void InferenceTable::begin(const bench::Options& options, const Transport& transport,
                           const std::vector<std::string>& notices) {
  print_launch(out_, options, transport);
  out_ << fmt::format(fmt::runtime(conventions), describe_peak(options));
  print_notices(out_, transport, notices);
  out_ << fmt::format(fmt::runtime(shape_format), "step", "pp", "tp", "req", "dtype", "layers",
                      "hidden", "seq", "batch")
       << fmt::format(fmt::runtime(numbers_format), "p50(ms)", "ttft(ms)", "ms/token", "tokens/s",
                      "hop(us)", "cache", "comp%", "MFU%", "check", "verdict")
       << std::flush;
}

void InferenceTable::add(const Outcome& row) {
  const Result& result = row.result;
  results_.push_back(result);
  results_.back().kernels.clear();  // the longest part, which no comparison needs
  const LayerConfig& layer = result.config.layer;
  const ModelShape& shape = layer.shape;
  const InferenceConfig& run = *layer.inference;
  out_ << fmt::format(fmt::runtime(shape_format), name_of(run.step), layer.parallel.pp.size,
                      layer.parallel.tp.size, run.requests, name_of(layer.dtype), shape.layers,
                      shape.hidden, shape.seq, shape.batch);
  if (const std::string missing = missing_text(result); !missing.empty())
    out_ << missing << others_of(result.config) << '\n';
  else
    add_measured(result);
  out_ << std::flush;
}

void InferenceTable::add_measured(const Result& result) {
  const bool decodes = result.config.layer.inference->step == InferenceStep::decode;
  const TimeSplit& split = result.split;
  const double hop_us = result.inference ? result.inference->hop_us : 0;
  out_ << fmt::format(fmt::runtime(numbers_format), number(result.time.p50 / 1e3, 3),
                      decodes ? "-" : number(ttft_us(result) / 1e3, 3),
                      decodes ? number(time_per_token_us(result) / 1e3, 3) : "-",
                      number(tokens_per_s(result), 1), hop_us > 0 ? number(hop_us, 1) : "-",
                      format_bytes(static_cast<double>(kv_cache_bytes(result.config.layer))),
                      number(100 * split.comp_us / std::max(split.window_us, 1e-9), 1),
                      mfu_text(result), check_text(result),
                      result.verdict + others_of(result.config));
  if (result.status == Status::failed) out_ << "    FAILED: " << result.reason << '\n';
  if (!result.volume.empty())
    out_ << fmt::format("    comm: {} by formula, {} counted\n",
                        format_bytes(result.bytes_analytic), format_bytes(result.bytes_observed));
  if (verbose_) print_terms(out_, result.volume);
  print_verdict(out_, result, verbose_);
}

void InferenceTable::finish(bool complete) {
  const std::vector<TpAgainstPp> comparisons = compare_tp_with_pp(results_);
  if (comparisons.empty()) return;
  out_ << fmt::format("\nTime per token (decode) and to the first one (prefill), tp against pp{}\n",
                      complete ? "" : ", of the rows before the interruption");
  out_ << "  Requests take turns and are not batched together: sequences that are, are those of "
          "--batch.\n";
  for (const TpAgainstPp& comparison : comparisons) print(out_, comparison);
  out_ << std::flush;
}

std::vector<TpAgainstPp> compare_tp_with_pp(std::span<const Result> results) {
  struct Pair {
    std::optional<TpAgainstPp::Times> tp, pp;
  };
  std::vector<TpAgainstPp> comparisons;
  std::vector<std::map<int, Pair>> pairs;  // by requests, of each comparison
  std::map<std::string, std::size_t> places;
  for (const Result& result : results) {
    const LayerConfig& layer = result.config.layer;
    const int tp = layer.parallel.tp.size, pp = layer.parallel.pp.size;
    if (!layer.inference || result.status != Status::ok || result.time.p50 <= 0) continue;
    if (tp * pp == 1 || (tp > 1 && pp > 1)) continue;
    const InferenceConfig& run = *layer.inference;
    const std::string key =
        message(shape_key(result.config), ' ', name_of(run.step), ' ', run.tokens, ' ', tp * pp);
    const auto [place, is_new] = places.try_emplace(key, comparisons.size());
    if (is_new) {
      comparisons.push_back({describe_shape(result.config), run.step, tp * pp, {}});
      pairs.emplace_back();
    }
    Pair& pair = pairs[place->second][run.requests];
    auto& mine = tp > 1 ? pair.tp : pair.pp;
    const TpAgainstPp::Times times = times_of(result);
    if (!mine || times.tokens_per_s > mine->tokens_per_s) mine = times;
  }
  for (std::size_t i = 0; i < comparisons.size(); ++i)
    for (const auto& [requests, pair] : pairs[i])
      if (pair.tp && pair.pp) comparisons[i].points.push_back({requests, *pair.tp, *pair.pp});
  std::erase_if(comparisons,
                [](const TpAgainstPp& comparison) { return comparison.points.empty(); });
  return comparisons;
}

std::string conclusion(const TpAgainstPp& comparison) {
  const TpAgainstPp::Point& first = comparison.points.front();
  const bool tp = first.tp.latency_us <= first.pp.latency_us;
  const double ratio =
      tp ? first.pp.latency_us / first.tp.latency_us : first.tp.latency_us / first.pp.latency_us;
  return fmt::format("{} {} is {:.2f}x as fast {} at {}; {}", tp ? "tp" : "pp", comparison.ranks,
                     ratio, latency_name(comparison.step), requests_text(first.requests),
                     throughput_text(comparison));
}

nlohmann::ordered_json to_json(std::span<const TpAgainstPp> comparisons) {
  auto list = nlohmann::ordered_json::array();
  for (const TpAgainstPp& comparison : comparisons) {
    auto points = nlohmann::ordered_json::array();
    for (const TpAgainstPp::Point& point : comparison.points)
      points.push_back({{"requests", point.requests},
                        {"tp_latency_us", point.tp.latency_us},
                        {"pp_latency_us", point.pp.latency_us},
                        {"tp_tokens_per_s", point.tp.tokens_per_s},
                        {"pp_tokens_per_s", point.pp.tokens_per_s}});
    list.push_back({{"shape", comparison.shape},
                    {"step", name_of(comparison.step)},
                    {"ranks", comparison.ranks},
                    {"latency", latency_name(comparison.step)},
                    {"points", std::move(points)},
                    {"conclusion", conclusion(comparison)}});
  }
  return list;
}

}  // namespace shardmark::bench::pp
