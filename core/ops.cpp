#include "core/ops.hpp"

namespace shardmark {
namespace {

double as_double(std::int64_t value) { return static_cast<double>(value); }

Touches without_absent(Touches touched) {
  std::erase_if(touched.reads, [](const Tensor& tensor) { return !tensor; });
  std::erase_if(touched.writes, [](const Tensor& tensor) { return !tensor; });
  return touched;
}

Touches raw_touches(const Op& op) {
  return std::visit(overloaded{
                        [](const Matmul& m) {
                          Touches t{{m.a, m.b, m.bias}, {m.c}};
                          if (m.accumulate) t.reads.push_back(m.c);
                          return t;
                        },
                        [](const Add& o) {
                          return Touches{{o.a, o.b}, {o.y}};
                        },
                        [](const AddBias& o) {
                          return Touches{{o.x, o.bias}, {o.y}};
                        },
                        [](const SumRows& o) {
                          return Touches{{o.x}, {o.y}};
                        },
                        [](const Copy& o) {
                          return Touches{{o.x}, {o.y}};
                        },
                        [](const Fill& o) {
                          return Touches{{}, {o.x}};
                        },
                        [](const Gelu& o) {
                          return Touches{{o.x}, {o.y}};
                        },
                        [](const GeluBackward& o) {
                          return Touches{{o.x, o.dy}, {o.dx}};
                        },
                        [](const SwiGlu& o) {
                          return Touches{{o.gate, o.up}, {o.y}};
                        },
                        [](const SwiGluBackward& o) {
                          return Touches{{o.gate, o.up, o.dy}, {o.dgate, o.dup}};
                        },
                        [](const Norm& o) {
                          return Touches{{o.x, o.gain, o.bias}, {o.y, o.stats}};
                        },
                        [](const NormBackward& o) {
                          return Touches{{o.x, o.gain, o.stats, o.dy}, {o.dx, o.dgain, o.dbias}};
                        },
                        [](const Attention& o) {
                          return Touches{{o.q, o.k, o.v}, {o.o, o.lse}};
                        },
                        [](const AttentionBackward& o) {
                          return Touches{{o.q, o.k, o.v, o.o, o.lse, o.d_o}, {o.dq, o.dk, o.dv}};
                        },
                        [](const Rope& o) {
                          return Touches{{o.x}, {o.x}};
                        },
                        [](const Embedding& o) {
                          Touches t{{o.ids, o.table}, {o.y}};
                          if (o.accumulate) t.reads.push_back(o.y);
                          return t;
                        },
                        [](const EmbeddingBackward& o) {
                          return Touches{{o.ids, o.dy}, {o.dtable}};
                        },
                        [](const RowMax& o) {
                          return Touches{{o.logits}, {o.maximum}};
                        },
                        [](const CrossEntropySum& o) {
                          return Touches{{o.logits, o.targets, o.maximum}, {o.partials}};
                        },
                        [](const CrossEntropyLoss& o) {
                          return Touches{{o.maximum, o.partials}, {o.loss}};
                        },
                        [](const CrossEntropyBackward& o) {
                          return Touches{{o.logits, o.targets, o.maximum, o.partials}, {o.dlogits}};
                        },
                        [](const AllReduce& o) {
                          return Touches{{o.x}, {o.x}};
                        },
                        [](const AllGather& o) {
                          return Touches{{o.x}, {o.y}};
                        },
                        [](const ReduceScatter& o) {
                          return Touches{{o.x}, {o.y}};
                        },
                        [](const Signal&) { return Touches{}; },
                        [](const Await&) { return Touches{}; },
                    },
                    op);
}

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

Touches touches(const Op& op) { return without_absent(raw_touches(op)); }

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
