#include "bench/context/rates.hpp"

#include "bench/harness/together.hpp"
#include "core/cpu/backend.hpp"
#include "core/cpu/gemm_probe.hpp"
#include "core/functions.hpp"
#include "core/host.hpp"
#include "core/launch.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

namespace shardmark::bench::context {
namespace {

constexpr std::int64_t probe_bytes = std::int64_t{4} << 20U;
constexpr std::int64_t probe_tokens = 1024, probe_heads = 4;

std::vector<Exchange> exchanges_of_cp(ContextKind kind) {
  using enum Exchange;
  switch (kind) {
    case ContextKind::ring:
      return {ring};
    case ContextKind::ulysses:
      return {all_to_all};
    case ContextKind::all_gather:
      return {all_gather, reduce_scatter};
    case ContextKind::hybrid:
      return {ring, all_to_all};
  }
  return {};
}

/// The group of rank `member` of the case that exchanges like `exchange` over `axis`.
Group group_of_member(const Parallel& parallel, Exchange exchange, Axis axis, int member) {
  const Parallel view = parallel.at(0, member);
  if (axis == Axis::tp) return view.tp;
  if (exchange == Exchange::all_to_all) return view.context.ulysses_group();
  if (exchange == Exchange::all_reduce) return view.context.cp;
  return view.context.ring_group();
}

struct Use {
  Exchange exchange;
  Axis axis;
};

std::vector<Use> uses_of(const LayerConfig& layer) {
  std::vector<Use> uses;
  const Parallel& parallel = layer.parallel;
  const bool has_linears = layer.block != BlockKind::attention_core;
  if (parallel.context.is_split())
    for (const Exchange exchange : exchanges_of_cp(parallel.context.kind))
      uses.push_back({exchange, Axis::cp});
  if (parallel.context.is_split() && has_linears) uses.push_back({Exchange::all_reduce, Axis::cp});
  if (parallel.tp.size == 1 || !has_linears) return uses;
  uses.push_back({Exchange::all_reduce, Axis::tp});
  if (!parallel.sequence_parallel) return uses;
  uses.push_back({Exchange::all_gather, Axis::tp});
  uses.push_back({Exchange::reduce_scatter, Axis::tp});
  return uses;
}

void submit(Rank& rank, Exchange exchange, const Group& group, const Tensor& x, const Tensor& y) {
  const std::int64_t part = x.numel() / group.size;
  const auto first = [](const Tensor& whole, std::int64_t count) {
    return whole.reshape({whole.numel()}).row_block(0, count);
  };
  switch (exchange) {
    case Exchange::ring:
      return send_recv(rank, x, (group.position + 1) % group.size, y,
                       (group.position + group.size - 1) % group.size, group, Lane::cp);
    case Exchange::all_to_all:
      return all_to_all(rank, first(x, part * group.size), first(y, part * group.size), group,
                        Lane::cp);
    case Exchange::all_gather:
      return all_gather(rank, first(x, part), first(y, part * group.size), group, Lane::cp);
    case Exchange::reduce_scatter:
      return reduce_scatter(rank, first(x, part * group.size), first(y, part), group, Lane::cp);
    case Exchange::all_reduce:
      return all_reduce(rank, x, group, Lane::cp);
  }
}

double bytes_across(Exchange exchange, int size, double bytes) {
  const double share = (size - 1.0) / size;
  return exchange == Exchange::ring         ? bytes
         : exchange == Exchange::all_reduce ? 2 * share * bytes
                                            : share * bytes;
}

/// All ranks run the same probes in the same order; those without a part in one only wait.
class Meter {
 public:
  Meter(Transport& transport, Engine& engine)
      : transport_{transport},
        engine_{engine},
        backend_{engine.make_backend(transport)},
        rank_{transport.rank(), Mesh{{.dp = transport.size()}}, *backend_} {}

  LinkRate link(Exchange exchange, const std::optional<Group>& group, int size) {
    if (group) engine_.connect(*group, Lane::cp);
    const auto time_of = [&](std::int64_t bytes, int count) {
      if (!group) return slowest_us(count, [] {});
      const Buffer x = buffer(bytes), y = buffer(bytes);
      return slowest_us(count, [&] {
        submit(rank_, exchange, *group, x.tensor(), y.tensor());
        rank_.synchronize();
      });
    };
    constexpr std::int64_t few_bytes = 4096;
    const double small_us = time_of(few_bytes, 20), large_us = time_of(probe_bytes, 5);
    const double bytes = bytes_across(exchange, size, probe_bytes - few_bytes);
    return {small_us, bytes / std::max(large_us - small_us, 1e-3) / 1e3};
  }

  double attention_tflops(DType dtype, std::int64_t head_dim, bool backward) {
    const AttentionShape shape{1, probe_tokens, probe_heads, probe_heads, head_dim, false};
    const auto tensor = [&] {
      Buffer made = rank_.allocate({shape.seq, probe_heads * head_dim}, dtype, Category::workspace);
      fill(rank_, made.tensor(), 0.1F);
      return made;
    };
    const Buffer q = tensor(), k = tensor(), v = tensor(), o = tensor(), d_o = tensor(),
                 dq = tensor(), dk = tensor(), dv = tensor();
    const Buffer lse = rank_.allocate({probe_heads, shape.seq}, DType::f32, Category::workspace);
    const Attention forward{q.tensor(), k.tensor(), v.tensor(), o.tensor(), lse.tensor(), shape};
    const AttentionBackward back{q.tensor(),   k.tensor(),  v.tensor(),  o.tensor(),  lse.tensor(),
                                 d_o.tensor(), dq.tensor(), dk.tensor(), dv.tensor(), shape};
    attention(rank_, forward);
    rank_.synchronize();
    const double time_us = slowest_us(3, [&] {
      if (backward)
        attention_backward(rank_, back);
      else
        attention(rank_, forward);
      rank_.synchronize();
    });
    return flops_of(backward ? Op{back} : Op{forward}) / time_us / 1e6;
  }

  double matmul_tflops(DType dtype) {
    transport_.barrier();
    return -transport_.maximum(-engine_.matmul_tflops(dtype));
  }

  double memory_GBps() {
    constexpr std::int64_t bytes = std::int64_t{32} << 20U;
    const Buffer x = buffer(bytes), y = buffer(bytes);
    return 2.0 * bytes /
           slowest_us(5,
                      [&] {
                        copy(rank_, x.tensor(), y.tensor());
                        rank_.synchronize();
                      }) /
           1e3;
  }

 private:
  Buffer buffer(std::int64_t bytes) {
    Buffer made = rank_.allocate({bytes / 4}, DType::f32, Category::communication);
    fill(rank_, made.tensor(), 1.0F);
    rank_.synchronize();
    return made;
  }

  /// The slowest rank's time, in the fastest of `count` runs after one more: what the machine can
  /// do, as other load only adds to it.
  template <class Run>
  double slowest_us(int count, const Run& run) {
    using Clock = std::chrono::steady_clock;
    double best_us = std::numeric_limits<double>::infinity();
    for (int i = 0; i <= count; ++i) {
      transport_.barrier();
      const Clock::time_point begin = Clock::now();
      run();
      const double mine = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
      const double slowest = transport_.maximum(mine);
      if (i > 0) best_us = std::min(best_us, slowest);
    }
    return best_us;
  }

  Transport& transport_;
  Engine& engine_;
  std::unique_ptr<MeasuredBackend> backend_;
  Rank rank_;
};

bool counts(const Case& config) { return config.skip_reason.empty(); }

void measure_links(MachineRates& rates, Meter& meter, const Transport& transport,
                   const LayerConfig& layer) {
  for (const auto& [exchange, axis] : uses_of(layer)) {
    const Group first = group_of_member(layer.parallel, exchange, axis, 0);
    const MachineRates::LinkKey key{exchange, first.stride, first.size};
    if (first.size == 1 || rates.links.contains(key)) continue;
    std::optional<Group> mine;
    if (transport.rank() < layer.parallel.num_ranks())
      mine = group_of_member(layer.parallel, exchange, axis, transport.rank());
    rates.links[key] = meter.link(exchange, mine, first.size);
  }
}

}  // namespace

std::string_view name_of(Exchange exchange) {
  static constexpr std::array<std::string_view, 5> names{"ring", "all-to-all", "all-gather",
                                                         "reduce-scatter", "all-reduce"};
  return names[static_cast<std::size_t>(exchange)];
}

std::optional<Exchange> exchange_of(const Op& op) {
  if (std::holds_alternative<SendRecv>(op)) return Exchange::ring;
  if (std::holds_alternative<AllToAll>(op) || std::holds_alternative<AllToAllV>(op))
    return Exchange::all_to_all;
  if (std::holds_alternative<AllGather>(op)) return Exchange::all_gather;
  if (std::holds_alternative<ReduceScatter>(op)) return Exchange::reduce_scatter;
  if (std::holds_alternative<AllReduce>(op)) return Exchange::all_reduce;
  return std::nullopt;
}

double LinkRate::time_us(double bytes) const { return latency_us + bytes / bandwidth_GBps / 1e3; }

const LinkRate& MachineRates::link(Exchange exchange, const Group& group) const {
  if (const auto exact = links.find({exchange, group.stride, group.size}); exact != links.end())
    return exact->second;
  const auto over = std::ranges::find_if(links, [&](const auto& link) {
    return link.first.stride == group.stride && link.first.size == group.size;
  });
  if (over != links.end()) return over->second;
  const auto as_many =
      std::ranges::find_if(links, [&](const auto& link) { return link.first.size == group.size; });
  SHARDMARK_CHECK(!links.empty(), "no link was measured");
  return as_many != links.end() ? as_many->second : links.begin()->second;
}

std::string MachineRates::doubts() const {
  constexpr double long_latency_us = 1000;
  std::string text;
  // Links of equally many ranks differ in stride only; one is enough.
  const auto add = [&](const std::string& reason) {
    if (text.find(reason) == std::string::npos) text += (text.empty() ? "" : "; ") + reason;
  };
  if (oversubscribed) add("more compute threads than cores, so ranks take turns");
  for (const auto& [key, rate] : links) {
    const std::string which = message(name_of(key.exchange), " of ", key.size, " ranks");
    if (one_host && rate.bandwidth_GBps > memory_GBps)
      add(message(which, " seems faster than a copy"));
    if (one_host && rate.latency_us > long_latency_us)
      add(message(which, " takes above 1 ms to start within one host"));
  }
  return text;
}

double MachineRates::time_us(const Op& op) const {
  if (const Group* group = group_of(op)) {
    if (group->size == 1) return 0;
    return link(exchange_of(op).value_or(Exchange::all_reduce), *group).time_us(bytes_wire_of(op));
  }
  constexpr double per_TFLOPs = 1e6;  // FLOPs of 1 TFLOP/s in a microsecond
  if (const auto* forward = std::get_if<Attention>(&op))
    return flops_of(op) / per_TFLOPs /
           attention_tflops.at({forward->q.dtype, forward->shape.head_dim, false});
  if (const auto* backward = std::get_if<AttentionBackward>(&op))
    return flops_of(op) / per_TFLOPs /
           attention_tflops.at({backward->q.dtype, backward->shape.head_dim, true});
  if (const auto* product = std::get_if<Matmul>(&op))
    return flops_of(op) / per_TFLOPs / matmul_tflops.at(product->a.dtype);
  return work(op).bytes_memory / memory_GBps / 1e3;
}

bool needs_rates(const Sweep& sweep) {
  return std::ranges::any_of(sweep.cases, [](const Case& config) {
    return counts(config) && config.layer.parallel.context.is_split();
  });
}

MachineRates measure_rates(Transport& transport, const RunnerOptions& options, const Sweep& sweep,
                           Engine& engine) {
  MachineRates rates;
  rates.oversubscribed = is_oversubscribed(transport, options.threads_per_rank);
  rates.one_host = std::ranges::all_of(transport.endpoints(), [&](const Endpoint& endpoint) {
    return endpoint.host == transport.endpoints().front().host;
  });
  Meter meter{transport, engine};
  rates.memory_GBps = meter.memory_GBps();
  for (const Case& config : sweep.cases) {
    if (!counts(config)) continue;
    const LayerConfig& layer = config.layer;
    measure_links(rates, meter, transport, layer);
    // The formulas compare a ring with Ulysses whatever the sweep runs.
    for (const ContextKind kind : {ContextKind::ring, ContextKind::ulysses}) {
      LayerConfig other = layer;
      other.parallel.context.kind = kind;
      measure_links(rates, meter, transport, other);
    }
    for (const bool backward : {false, true}) {
      const MachineRates::AttentionKey key{layer.dtype, layer.shape.head_dim, backward};
      if (!rates.attention_tflops.contains(key))
        rates.attention_tflops[key] =
            meter.attention_tflops(layer.dtype, layer.shape.head_dim, backward);
    }
    if (layer.block != BlockKind::attention_core && !rates.matmul_tflops.contains(layer.dtype))
      rates.matmul_tflops[layer.dtype] = meter.matmul_tflops(layer.dtype);
  }
  return rates;
}

}  // namespace shardmark::bench::context
