#include "core/error.hpp"
#include "layers/parameters_internal.hpp"
#include "layers/volume_internal.hpp"

#include <algorithm>

namespace shardmark {

void VolumeCounter::attention_core() {
  if (!context().is_split()) return;
  if (context().ulysses_size() > 1) exchange_heads();
  if (context().ring_group().size > 1) exchange_keys();
}

void VolumeCounter::exchange_heads() {
  const double u = context().ulysses_size(), tokens = as_double(config_.tokens());
  const double d = as_double(shape().head_dim);
  const double q = as_double(shape().heads / config_.parallel.tp.size) * d;
  const double kv = std::max(as_double(config_.local_kv_heads()), u) * d;
  const auto line = [&](const std::string& what, double columns, const char* formula) {
    add(what, (u - 1) / u * tokens * columns * element(),
        message("(u-1)/u * ", formula, "*e, u=", u, ", T=", tokens, ", q=", q,
                ", kv=max(kv_heads,u)*d=", kv));
  };
  if (forward_) {
    line("attention forward: all-to-all of q, k, v", q + 2 * kv, "T*(q+2kv)");
    line("attention forward: all-to-all of o", q, "T*q");
  }
  if (backward_) {
    line("attention backward: all-to-all of o's gradient", q, "T*q");
    line("attention backward: all-to-all of q's, k's, v's gradients", q + 2 * kv, "T*(q+2kv)");
  }
}

void VolumeCounter::exchange_keys() {
  const bool gathers = context().kind == ContextKind::all_gather;
  if (!gathers && skips_parts()) return exchange_keys_of_plan();
  const double P = context().ring_group().size;
  const double heads =
      as_double(std::max<std::int64_t>(1, config_.local_kv_heads() / context().ulysses_size()));
  const double columns = heads * as_double(shape().head_dim);
  const double rows = as_double(shape().batch * shape().seq);
  const auto line = [&](const std::string& what, double bytes, const char* e) {
    add(what, 2 * (P - 1) / P * rows * columns * bytes,
        message("2(P-1)/P * b*s*kv*", e, ", P=", P, ", b*s=", rows, ", kv=", columns));
  };
  const std::string how = gathers ? "all-gather of k and v" : "ring of k and v";
  if (forward_) line("attention forward: " + how, element(), "e");
  if (!backward_) return;
  if (!gathers) line("attention backward: " + how + " again", element(), "e");
  line(message("attention backward: ", gathers ? "reduce-scatter" : "ring",
               " of k's and v's gradients"),
       4, "4");
}

bool VolumeCounter::skips_parts() const {
  if (shape().window > 0 || !shape().seqlens.empty()) return true;
  // Of the balanced orders every part has keys that every rank needs, if it has more than a few.
  const bool balanced =
      context().order == TokenOrder::zigzag ||
      (context().order == TokenOrder::striped && shape().seq > context().ring_group().size);
  return shape().causal && !balanced;
}

void VolumeCounter::exchange_keys_of_plan() {
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    if (phase == Phase::forward ? !forward_ : !backward_) continue;
    double bytes = 0;
    for (const OpRecord& record : record_program(config_, phase, 1).ops)
      if (std::holds_alternative<SendRecv>(record.op)) bytes += bytes_sent_of(record.op);
    add(message("attention ", phase == Phase::forward ? "forward" : "backward", ": ring of k and v",
                phase == Phase::forward ? "" : " and of their gradients"),
        bytes, "counted from the plan: parts go only as far as the masks let somebody see them");
  }
}

}  // namespace shardmark
