// Advice as text and as JSON.

#include "bench/context/advice.hpp"
#include "bench/harness/statistics.hpp"
#include "bench/harness/sweep.hpp"
#include "bench/harness/table.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <vector>

namespace shardmark::bench::context {
namespace {

using Json = nlohmann::ordered_json;

std::string milliseconds(double time_us) { return fmt::format("{:.3f} ms", time_us / 1e3); }
std::string tokens(double count) {
  if (!std::isfinite(count)) return "no length";
  return fmt::format("{:.0f} tokens", std::ceil(count));
}
std::string describe_link(const LinkRate& link) {
  return fmt::format("{:.1f} us + bytes / {:.3g} GB/s", link.latency_us, link.bandwidth_GBps);
}

void print_rates(std::ostream& out, const MachineRates& rates) {
  out << "  measured, all ranks at once, the slowest rank's:\n";
  for (const auto& [key, rate] : rates.links)
    out << fmt::format("    {} of {} ranks{}: {}\n", name_of(key.exchange), key.size,
                       key.stride > 1 ? fmt::format(", {} apart", key.stride) : "",
                       describe_link(rate));
  for (const auto& [key, tflops] : rates.attention_tflops)
    out << fmt::format("    attention {}, {}, head-dim {}: {:.4g} TFLOP/s\n",
                       key.backward ? "backward" : "forward", name_of(key.dtype), key.head_dim,
                       tflops);
  for (const auto& [dtype, tflops] : rates.matmul_tflops)
    out << fmt::format("    matmul {}: {:.4g} TFLOP/s\n", name_of(dtype), tflops);
  out << fmt::format("    copies: {:.3g} GB/s read and written\n", rates.memory_GBps);
}

void print_formulas(std::ostream& out, const Advice& advice) {
  const Formulas& f = advice.formulas;
  const LayerConfig& layer = advice.predicted().config.layer;
  const ModelShape& shape = layer.shape;
  const int cp = layer.parallel.context.cp.size;
  const std::int64_t tp = layer.parallel.tp.size;
  out << fmt::format("  P {}, b {}, s {}, h = heads / tp * head-dim = {}, hkv = {}, e {}, c {}{}\n",
                     cp, shape.batch, shape.seq, shape.heads / tp * shape.head_dim,
                     f.kv_limit * shape.head_dim, size_of(layer.dtype),
                     shape.causal ? "1/2 (causal)" : "1 (full)",
                     shape.window > 0 || !shape.seqlens.empty()
                         ? "; formulas are for attention without window and packing"
                         : "");
  out << fmt::format(
      "  volume forward: ring 2(P-1)/P*b*s*hkv*e = {}; Ulysses (P-1)/P*(b*s/P)*(2h+2hkv)*e = {}\n"
      "    ring / Ulysses = P*hkv/(h+hkv) = {:.2f}; equal at P = (h+hkv)/hkv = {:.1f}: below it "
      "the ring moves less\n",
      format_bytes(f.ring_bytes), format_bytes(f.ulysses_bytes), cp / f.equal_cp, f.equal_cp);
  out << fmt::format(
      "  exchange forward: ring (P-1)*{:.1f} us + volume / {:.3g} GB/s = {}; Ulysses 2*{:.1f} us + "
      "volume / {:.3g} GB/s = {}\n",
      advice.ring.latency_us, advice.ring.bandwidth_GBps, milliseconds(f.ring_us),
      advice.ulysses.latency_us, advice.ulysses.bandwidth_GBps, milliseconds(f.ulysses_us));
  out << (f.equal_seq ? fmt::format("    equal at s = {}\n", tokens(*f.equal_seq))
                      : fmt::format("    {} exchanges faster at every length\n",
                                    f.ring_us < f.ulysses_us ? "the ring" : "Ulysses"));
  out << fmt::format(
      "  the ring hides its exchange from s = {} forward, {} backward: 4bhc(s/P)^2 / {:.4g} "
      "TFLOP/s (10 and {:.4g}\n    TFLOP/s backward) is then at least {:.1f} us + "
      "2(s/P)*b*hkv*e (e + 4) / {:.3g} GB/s\n",
      tokens(f.hiding_seq_forward), tokens(f.hiding_seq_backward), advice.forward_tflops,
      advice.backward_tflops, advice.ring.latency_us, advice.ring.bandwidth_GBps);
  out << fmt::format(
      "  Ulysses splits heads: at most heads / tp = {} ranks; beyond kv-heads / tp = {} it sends K "
      "and V repeatedly\n",
      f.most_ulysses, f.kv_limit);
}

std::string split_of(const Candidate& candidate) {
  return describe_split(candidate.config.layer.parallel);
}

/// ", all-gather within 0.4 %" where the next kind is that close to the predicted one.
std::string runner_up(const Advice& advice) {
  constexpr double close_pct = 2;
  const auto kind = [](const Candidate& candidate) {
    return candidate.config.layer.parallel.context.kind;
  };
  const auto next = std::ranges::find_if(advice.candidates, [&](const Candidate& candidate) {
    return kind(candidate) != kind(advice.predicted());
  });
  if (next == advice.candidates.end()) return {};
  const double behind_pct =
      100 * (next->prediction.time_us / advice.predicted().prediction.time_us - 1);
  return behind_pct > close_pct
             ? std::string{}
             : fmt::format(", {} within {:.1f} %", name_of(kind(*next)), behind_pct);
}

void print_candidates(std::ostream& out, const Advice& advice) {
  out << "  replay of the recorded operations with these rates:\n";
  for (const Candidate& candidate : advice.candidates) {
    const Prediction& p = candidate.prediction;
    out << fmt::format("    {:<36} {:>11} = compute {:.3f} + exposed {:.3f} (exchange {:.3f})",
                       split_of(candidate), milliseconds(p.time_us), p.compute_us / 1e3,
                       p.exposed_us() / 1e3, p.exchange_us / 1e3);
    if (candidate.measured_us > 0)
      out << fmt::format("; measured {}", milliseconds(candidate.measured_us));
    out << '\n';
  }
  out << "  predicted fastest: " << split_of(advice.predicted()) << runner_up(advice);
  if (const Candidate* fastest = advice.measured())
    out << fmt::format("; measured fastest: {} ({}; the predicted one took {:.1f} % longer)",
                       split_of(*fastest), advice.agrees() ? "the same kind" : "another kind",
                       advice.regret_pct());
  out << '\n';
}

}  // namespace

void print(std::ostream& out, const MachineRates& rates, std::span<const Advice> advice) {
  if (advice.empty()) return;
  out << "\nAdvice\n";
  print_rates(out, rates);
  if (const std::string doubts = rates.doubts(); !doubts.empty())
    out << "  unreliable: " << doubts << '\n';
  int agreed = 0;
  std::vector<double> regrets_pct;
  for (const Advice& one : advice) {
    out << describe_shape(one.predicted().config) << '\n';
    print_formulas(out, one);
    print_candidates(out, one);
    if (one.measured() != nullptr) regrets_pct.push_back(one.regret_pct());
    agreed += one.agrees() ? 1 : 0;
  }
  if (!regrets_pct.empty())
    out << fmt::format(
        "The kind predicted as the fastest was measured so in {} of {} cases; the predicted split "
        "took {:.1f} %\nlonger than the fastest in the median, at most {:.1f} %.\n",
        agreed, regrets_pct.size(), median(regrets_pct), std::ranges::max(regrets_pct));
  out << std::flush;
}

Json to_json(const MachineRates& rates, std::span<const Advice> advice) {
  Json links = Json::array(), attention = Json::array(), shapes = Json::array();
  for (const auto& [key, rate] : rates.links)
    links.push_back({{"exchange", name_of(key.exchange)},
                     {"ranks", key.size},
                     {"stride", key.stride},
                     {"latency_us", rate.latency_us},
                     {"bandwidth_GBps", rate.bandwidth_GBps}});
  for (const auto& [key, tflops] : rates.attention_tflops)
    attention.push_back({{"dtype", name_of(key.dtype)},
                         {"head_dim", key.head_dim},
                         {"direction", key.backward ? "backward" : "forward"},
                         {"tflops", tflops}});
  for (const Advice& one : advice) {
    const Formulas& f = one.formulas;
    Json candidates = Json::array();
    for (const Candidate& candidate : one.candidates) {
      Json entry{{"split", split_of(candidate)},
                 {"cp_kind", name_of(candidate.config.layer.parallel.context.kind)},
                 {"predicted_us", candidate.prediction.time_us},
                 {"compute_us", candidate.prediction.compute_us},
                 {"exchange_us", candidate.prediction.exchange_us}};
      if (candidate.measured_us > 0) entry["measured_us"] = candidate.measured_us;
      candidates.push_back(std::move(entry));
    }
    Json entry{{"shape", describe_shape(one.predicted().config)},
               {"cp", one.predicted().config.layer.parallel.context.cp.size},
               {"equal_volume_cp", f.equal_cp},
               {"ring_exchange_us", f.ring_us},
               {"ulysses_exchange_us", f.ulysses_us},
               {"hiding_seq_forward", f.hiding_seq_forward},
               {"hiding_seq_backward", f.hiding_seq_backward},
               {"most_ulysses", f.most_ulysses},
               {"kv_limit", f.kv_limit},
               {"predicted", split_of(one.predicted())}};
    if (const Candidate* fastest = one.measured()) {
      entry["measured"] = split_of(*fastest);
      entry["agrees"] = one.agrees();
      entry["regret_pct"] = one.regret_pct();
    }
    entry["candidates"] = std::move(candidates);
    shapes.push_back(std::move(entry));
  }
  return {{"rates",
           {{"links", std::move(links)},
            {"attention", std::move(attention)},
            {"copy_GBps", rates.memory_GBps}}},
          {"advice", std::move(shapes)}};
}

}  // namespace shardmark::bench::context
