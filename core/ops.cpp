#include "core/ops.hpp"

namespace shardmark {
namespace {

double as_double(std::int64_t value) { return static_cast<double>(value); }

// One overload per op; a missing one does not compile.
Touches touched_by(const Matmul& o) {
  Touches touched{{o.a, o.b, o.bias}, {o.c}};
  if (o.accumulate) touched.reads.push_back(o.c);
  return touched;
}
Touches touched_by(const Add& o) { return {{o.a, o.b}, {o.y}}; }
Touches touched_by(const AddBias& o) { return {{o.x, o.bias}, {o.y}}; }
Touches touched_by(const SumRows& o) { return {{o.x}, {o.y}}; }
Touches touched_by(const Copy& o) { return {{o.x}, {o.y}}; }
Touches touched_by(const Fill& o) { return {{}, {o.x}}; }
Touches touched_by(const Gelu& o) { return {{o.x}, {o.y}}; }
Touches touched_by(const GeluBackward& o) { return {{o.x, o.dy}, {o.dx}}; }
Touches touched_by(const SwiGlu& o) { return {{o.gate, o.up}, {o.y}}; }
Touches touched_by(const SwiGluBackward& o) { return {{o.gate, o.up, o.dy}, {o.dgate, o.dup}}; }
Touches touched_by(const Norm& o) { return {{o.x, o.gain, o.bias}, {o.y, o.stats}}; }
Touches touched_by(const NormBackward& o) {
  return {{o.x, o.gain, o.stats, o.dy}, {o.dx, o.dgain, o.dbias}};
}
Touches touched_by(const Attention& o) { return {{o.q, o.k, o.v}, {o.o, o.lse}}; }
Touches touched_by(const AttentionBackward& o) {
  return {{o.q, o.k, o.v, o.o, o.lse, o.d_o}, {o.dq, o.dk, o.dv}};
}
Touches touched_by(const Rope& o) { return {{o.x}, {o.x}}; }
Touches touched_by(const Embedding& o) {
  Touches touched{{o.ids, o.table}, {o.y}};
  if (o.accumulate) touched.reads.push_back(o.y);
  return touched;
}
Touches touched_by(const EmbeddingBackward& o) { return {{o.ids, o.dy}, {o.dtable}}; }
Touches touched_by(const RowMax& o) { return {{o.logits}, {o.maximum}}; }
Touches touched_by(const CrossEntropySum& o) {
  return {{o.logits, o.targets, o.maximum}, {o.partials}};
}
Touches touched_by(const CrossEntropyLoss& o) { return {{o.maximum, o.partials}, {o.loss}}; }
Touches touched_by(const CrossEntropyBackward& o) {
  return {{o.logits, o.targets, o.maximum, o.partials}, {o.dlogits}};
}
Touches touched_by(const AllReduce& o) { return {{o.x}, {o.x}}; }
Touches touched_by(const AllGather& o) { return {{o.x}, {o.y}}; }
Touches touched_by(const ReduceScatter& o) { return {{o.x}, {o.y}}; }
Touches touched_by(const Signal&) { return {}; }
Touches touched_by(const Await&) { return {}; }

/// Unmasked (query, key) pairs of one head.
double attended_pairs(const AttentionShape& shape) {
  const double s = as_double(shape.seq);
  return shape.causal ? s * (s + 1) / 2 : s * s;
}

/// Two matmuls of 2 x head_dim FLOPs per pair.
double attention_flops(const AttentionShape& shape) {
  return 4.0 * as_double(shape.batch * shape.heads * shape.head_dim) * attended_pairs(shape);
}

}  // namespace

OpKind kind_of(const Op& op) {
  if (group_of(op) != nullptr) return OpKind::communication;
  const bool ordering = std::holds_alternative<Signal>(op) || std::holds_alternative<Await>(op);
  return ordering ? OpKind::ordering : OpKind::compute;
}

std::string_view name_of(const Op& op) {
  static constexpr std::array<std::string_view, 26> names{"matmul",
                                                          "add",
                                                          "add_bias",
                                                          "sum_rows",
                                                          "copy",
                                                          "fill",
                                                          "gelu",
                                                          "gelu_bwd",
                                                          "swiglu",
                                                          "swiglu_bwd",
                                                          "norm",
                                                          "norm_bwd",
                                                          "attention",
                                                          "attention_bwd",
                                                          "rope",
                                                          "embedding",
                                                          "embedding_bwd",
                                                          "row_max",
                                                          "cross_entropy_sum",
                                                          "cross_entropy_loss",
                                                          "cross_entropy_bwd",
                                                          "all_reduce",
                                                          "all_gather",
                                                          "reduce_scatter",
                                                          "signal",
                                                          "await"};
  static_assert(names.size() == std::variant_size_v<Op>);
  return names[op.index()];
}

double flops_of(const Op& op) {
  if (const auto* m = std::get_if<Matmul>(&op)) {
    const std::int64_t k = m->transpose_a ? m->a.rows() : m->a.cols();
    return 2.0 * as_double(m->c.rows()) * as_double(m->c.cols()) * as_double(k);
  }
  if (const auto* attention = std::get_if<Attention>(&op)) return attention_flops(attention->shape);
  if (const auto* attention = std::get_if<AttentionBackward>(&op))
    return 2.5 * attention_flops(attention->shape);
  return 0;
}

double bytes_wire_of(const Op& op) {
  const Group* group = group_of(op);
  if (group == nullptr) return 0;
  const double share = as_double(group->size - 1) / as_double(group->size);
  return std::visit(overloaded{
                        [&](const AllReduce& o) { return 2 * share * as_double(o.x.bytes()); },
                        [&](const AllGather& o) { return share * as_double(o.y.bytes()); },
                        [&](const ReduceScatter& o) { return share * as_double(o.x.bytes()); },
                        [](const auto&) { return 0.0; },
                    },
                    op);
}

Work work(const Op& op) {
  const Touches touched = touches(op);
  Work result{flops_of(op), 0, bytes_wire_of(op)};
  for (const auto* list : {&touched.reads, &touched.writes})
    for (const Tensor& tensor : *list) result.bytes_memory += as_double(tensor.bytes());
  return result;
}

Touches touches(const Op& op) {
  Touches touched = std::visit([](const auto& o) { return touched_by(o); }, op);
  std::erase_if(touched.reads, [](const Tensor& tensor) { return !tensor; });
  std::erase_if(touched.writes, [](const Tensor& tensor) { return !tensor; });
  return touched;
}

const Group* group_of(const Op& op) {
  return std::visit(overloaded{
                        [](const AllReduce& o) { return &o.group; },
                        [](const AllGather& o) { return &o.group; },
                        [](const ReduceScatter& o) { return &o.group; },
                        [](const auto&) -> const Group* { return nullptr; },
                    },
                    op);
}

}  // namespace shardmark
