#include "bench/context/advice.hpp"

#include "bench/harness/sweep.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

namespace shardmark::bench::context {
namespace {

double as_double(std::int64_t value) { return static_cast<double>(value); }

/// The smallest x >= 0 with a x^2 >= b x + c.
double crossing(double a, double b, double c) {
  if (a <= 0) return std::numeric_limits<double>::infinity();
  return (b + std::sqrt(b * b + 4 * a * c)) / (2 * a);
}

/// Groups as a ring and as Ulysses over all ranks of cp would use them.
ContextParallel as_kind(ContextParallel context, ContextKind kind) {
  context.kind = kind;
  return context;
}

Advice begin_advice(const Case& config, const MachineRates& rates) {
  Advice advice;
  const LayerConfig& layer = config.layer;
  const ContextParallel& context = layer.parallel.context;
  advice.ring = rates.link(Exchange::ring, as_kind(context, ContextKind::ring).ring_group());
  advice.ulysses =
      rates.link(Exchange::all_to_all, as_kind(context, ContextKind::ulysses).ulysses_group());
  const std::int64_t head_dim = layer.shape.head_dim;
  advice.forward_tflops = rates.attention_tflops.at({layer.dtype, head_dim, false});
  advice.backward_tflops = rates.attention_tflops.at({layer.dtype, head_dim, true});
  advice.formulas = formulas_of(layer, advice.ring, advice.ulysses, advice.forward_tflops,
                                advice.backward_tflops);
  return advice;
}

}  // namespace

Formulas formulas_of(const LayerConfig& config, const LinkRate& ring, const LinkRate& ulysses,
                     double forward_tflops, double backward_tflops) {
  const ModelShape& shape = config.shape;
  const double P = config.parallel.context.cp.size;
  const std::int64_t tp = config.parallel.tp.size;
  const std::int64_t kv_heads = std::max<std::int64_t>(1, shape.kv_heads / tp);
  const double b = as_double(shape.batch), s = as_double(shape.seq);
  const double e = as_double(size_of(config.dtype));
  const double h = as_double(shape.heads / tp * shape.head_dim);
  const double hkv = as_double(kv_heads * shape.head_dim);
  const double c = shape.causal ? 0.5 : 1.0;
  const double ring_per_token = 2 * (P - 1) / P * b * hkv * e;
  const double ulysses_per_token = (P - 1) / P * (b / P) * (2 * h + 2 * hkv) * e;

  Formulas f;
  f.ring_bytes = ring_per_token * s;
  f.ulysses_bytes = ulysses_per_token * s;
  f.equal_cp = (h + hkv) / hkv;
  constexpr double bytes_per_us = 1e3;  // of 1 GB/s
  f.ring_us = (P - 1) * ring.latency_us + f.ring_bytes / ring.bandwidth_GBps / bytes_per_us;
  f.ulysses_us = 2 * ulysses.latency_us + f.ulysses_bytes / ulysses.bandwidth_GBps / bytes_per_us;
  const double slope = ring_per_token / ring.bandwidth_GBps / bytes_per_us -
                       ulysses_per_token / ulysses.bandwidth_GBps / bytes_per_us;
  const double length = (2 * ulysses.latency_us - (P - 1) * ring.latency_us) / slope;
  if (std::isfinite(length) && length > 0) f.equal_seq = length;

  constexpr double flops_per_us = 1e6;  // of 1 TFLOP/s
  const auto hiding = [&](double flops_per_pair, double bytes_per_kv_element, double tflops) {
    return P * crossing(flops_per_pair * b * h * c / tflops / flops_per_us,
                        2 * b * hkv * bytes_per_kv_element / ring.bandwidth_GBps / bytes_per_us,
                        ring.latency_us);
  };
  f.hiding_seq_forward = hiding(4, e, forward_tflops);
  f.hiding_seq_backward = hiding(10, e + 4, backward_tflops);
  f.most_ulysses = shape.heads / tp;
  f.kv_limit = kv_heads;
  return f;
}

const Candidate* Advice::measured() const {
  const Candidate* fastest = nullptr;
  for (const Candidate& candidate : candidates) {
    if (candidate.measured_us <= 0) return nullptr;
    if (fastest == nullptr || candidate.measured_us < fastest->measured_us) fastest = &candidate;
  }
  return fastest;
}

bool Advice::agrees() const {
  const Candidate* fastest = measured();
  return fastest != nullptr && fastest->config.layer.parallel.context.kind ==
                                   predicted().config.layer.parallel.context.kind;
}

double Advice::regret_pct() const {
  const Candidate* fastest = measured();
  return fastest != nullptr ? 100 * (predicted().measured_us / fastest->measured_us - 1) : 0;
}

std::vector<Advice> advise(std::span<const Case> cases, const MachineRates& rates) {
  std::vector<Advice> list;
  std::map<std::tuple<std::string, int, int>, std::size_t> places;
  for (const Case& config : cases) {
    const Parallel& parallel = config.layer.parallel;
    if (!config.skip_reason.empty() || !parallel.context.is_split()) continue;
    const auto [place, is_new] = places.try_emplace(
        {shape_key(config), parallel.tp.size, parallel.context.cp.size}, list.size());
    if (is_new) list.push_back(begin_advice(config, rates));
    list[place->second].candidates.push_back({config, predict(config, rates)});
  }
  for (Advice& advice : list)
    std::ranges::stable_sort(advice.candidates, {}, [](const Candidate& candidate) {
      return candidate.prediction.time_us;
    });
  return list;
}

void add_measured(std::vector<Advice>& advice, std::span<const Result> results) {
  std::map<std::string, double> times_us;
  for (const Result& result : results)
    if (result.status == Status::ok)
      times_us[shape_key(result.config) + describe(result.config)] = result.time.p50;
  for (Advice& one : advice)
    for (Candidate& candidate : one.candidates)
      if (const auto found =
              times_us.find(shape_key(candidate.config) + describe(candidate.config));
          found != times_us.end())
        candidate.measured_us = found->second;
}

}  // namespace shardmark::bench::context
