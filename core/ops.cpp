#include "core/ops.hpp"

#include <algorithm>

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
Touches touched_by(const SumRows& o) {
  Touches touched{{o.x}, {o.y}};
  if (o.accumulate) touched.reads.push_back(o.y);
  return touched;
}
Touches touched_by(const Copy& o) { return {{o.x}, {o.y}}; }
Touches touched_by(const Fill& o) { return {{}, {o.x}}; }
Touches touched_by(const Gelu& o) { return {{o.x}, {o.y}}; }
Touches touched_by(const GeluBackward& o) { return {{o.x, o.dy}, {o.dx}}; }
Touches touched_by(const SwiGlu& o) { return {{o.gate, o.up}, {o.y}}; }
Touches touched_by(const SwiGluBackward& o) { return {{o.gate, o.up, o.dy}, {o.dgate, o.dup}}; }
Touches touched_by(const Norm& o) { return {{o.x, o.gain, o.bias}, {o.y, o.stats}}; }
Touches touched_by(const NormBackward& o) {
  Touches touched{{o.x, o.gain, o.stats, o.dy}, {o.dx, o.dgain, o.dbias}};
  if (o.accumulate) touched.reads.insert(touched.reads.end(), {o.dgain, o.dbias});
  return touched;
}
Touches touched_by(const Attention& o) {
  Touches touches{{o.q, o.k, o.v}, {o.o, o.lse}};
  if (o.accumulate) touches.reads.insert(touches.reads.end(), {o.o, o.lse});
  return touches;
}
Touches touched_by(const AttentionBackward& o) {
  Touches touched{{o.q, o.k, o.v, o.o, o.lse, o.d_o}, {o.dq, o.dk, o.dv}};
  if (o.accumulate) touched.reads.insert(touched.reads.end(), {o.dq, o.dk, o.dv});
  return touched;
}
Touches touched_by(const Rope& o) { return {{o.x}, {o.x}}; }
Touches touched_by(const Embedding& o) {
  Touches touched{{o.ids, o.table}, {o.y}};
  if (o.accumulate) touched.reads.push_back(o.y);
  return touched;
}
Touches touched_by(const EmbeddingBackward& o) {
  Touches touched{{o.ids, o.dy}, {o.dtable}};
  if (o.accumulate) touched.reads.push_back(o.dtable);
  return touched;
}
Touches touched_by(const RowMax& o) { return {{o.logits}, {o.maximum}}; }
Touches touched_by(const CrossEntropySum& o) {
  return {{o.logits, o.targets, o.maximum}, {o.partials}};
}
Touches touched_by(const CrossEntropyLoss& o) { return {{o.maximum, o.partials}, {o.loss}}; }
Touches touched_by(const CrossEntropyBackward& o) {
  return {{o.logits, o.targets, o.maximum, o.partials}, {o.dlogits}};
}
Touches touched_by(const Combine& o) { return {{o.x, o.y}, {o.y}}; }
Touches touched_by(const Divide& o) { return {{o.x}, {o.x}}; }
Touches touched_by(const AllReduce& o) { return {{o.x}, {o.y ? o.y : o.x}}; }
Touches touched_by(const AllGather& o) { return {{o.x}, {o.y}}; }
Touches touched_by(const ReduceScatter& o) { return {{o.x}, {o.y}}; }
Touches touched_by(const AllToAll& o) { return {{o.x}, {o.y}}; }
Touches touched_by(const AllToAllV& o) { return {{o.x}, {o.y}}; }
Touches touched_by(const Broadcast& o) {
  if (o.group.position == o.root) return {{o.x}, {o.y}};
  return {{}, {o.y}};
}
Touches touched_by(const Reduce& o) {
  if (o.group.position == o.root) return {{o.x}, {o.y}};
  return {{o.x}, {}};
}
Touches touched_by(const Gather& o) {
  if (o.group.position == o.root) return {{o.x}, {o.y}};
  return {{o.x}, {}};
}
Touches touched_by(const Scatter& o) {
  if (o.group.position == o.root) return {{o.x}, {o.y}};
  return {{}, {o.y}};
}
Touches touched_by(const SendRecv& o) { return {{o.x}, {o.y}}; }
Touches touched_by(const Barrier&) { return {}; }
Touches touched_by(const Signal&) { return {}; }
Touches touched_by(const Await&) { return {}; }

/// Two matmuls of 2 x head_dim FLOPs per pair.
double attention_flops(const AttentionShape& shape) {
  return 4.0 * as_double(shape.batch * shape.heads * shape.head_dim) *
         visible_pairs(shape.visibility(), shape.query_places(), shape.key_places());
}

// One overload per op that has any.
using WithoutFlops =
    std::variant<Add, AddBias, SumRows, Copy, Fill, Combine, Divide, Gelu, GeluBackward, SwiGlu,
                 SwiGluBackward, Norm, NormBackward, Rope, Embedding, EmbeddingBackward, RowMax,
                 CrossEntropySum, CrossEntropyLoss, CrossEntropyBackward, AllReduce, AllGather,
                 ReduceScatter, AllToAll, AllToAllV, Broadcast, Reduce, Gather, Scatter, SendRecv,
                 Barrier, Signal, Await>;
double flops_in(const AlternativeOf<WithoutFlops> auto&) { return 0; }
double flops_in(const Matmul& o) {
  const std::int64_t k = o.transpose_a ? o.a.rows() : o.a.cols();
  return 2.0 * as_double(o.c.rows()) * as_double(o.c.cols()) * as_double(k);
}
double flops_in(const Attention& o) { return attention_flops(o.shape); }
double flops_in(const AttentionBackward& o) { return 2.5 * attention_flops(o.shape); }

/// What a member sends to others, or receives from them if that is more.
double heavier_direction(const AllToAllV& o) {
  const auto n = static_cast<std::size_t>(o.group.size);
  const auto me = static_cast<std::size_t>(o.group.position);
  std::int64_t sent = 0;
  std::int64_t received = 0;
  for (std::size_t peer = 0; peer < n; ++peer) {
    if (peer == me) continue;
    sent += o.counts[me * n + peer];
    received += o.counts[peer * n + me];
  }
  return as_double(std::max(sent, received) * size_of(o.x.dtype));
}

}  // namespace

OpKind kind_of(const Op& op) {
  constexpr std::size_t num_compute = std::variant_size_v<ComputeOp>;
  constexpr std::size_t num_communication = std::variant_size_v<CommunicationOp>;
  if (op.index() < num_compute) return OpKind::compute;
  return op.index() < num_compute + num_communication ? OpKind::communication : OpKind::ordering;
}

std::string_view name_of(const Op& op) {
  // clang-format off
  static constexpr std::array<std::string_view, std::variant_size_v<Op>> names{
      "matmul", "add", "add_bias", "sum_rows", "copy", "fill", "combine", "divide", "gelu",
      "gelu_bwd", "swiglu", "swiglu_bwd", "norm", "norm_bwd", "attention", "attention_bwd", "rope",
      "embedding", "embedding_bwd", "row_max", "cross_entropy_sum", "cross_entropy_loss",
      "cross_entropy_bwd", "all_reduce", "all_gather", "reduce_scatter", "all_to_all",
      "all_to_all_v", "broadcast", "reduce", "gather", "scatter", "send_recv", "barrier", "signal",
      "await",
  };
  // clang-format on
  static_assert(!names.back().empty());
  return names[op.index()];
}

std::string_view name_of(Reduction reduction) {
  static constexpr std::array<std::string_view, 5> names{"sum", "prod", "max", "min", "avg"};
  return names[static_cast<std::size_t>(reduction)];
}

double flops_of(const Op& op) {
  return std::visit([](const auto& o) { return flops_in(o); }, op);
}

double bytes_wire_of(const Op& op) {
  const auto others = [](const Group& group) {
    return as_double(group.size - 1) / as_double(group.size);
  };
  const auto crosses = [](const Group& group) { return group.size > 1 ? 1.0 : 0.0; };
  const auto total = [](const Group& group, const Tensor& block) {
    return as_double(group.size * block.bytes());
  };
  return std::visit(
      overloaded{
          [&](const AllReduce& o) { return 2 * others(o.group) * as_double(o.x.bytes()); },
          [&](const AllGather& o) { return others(o.group) * as_double(o.y.bytes()); },
          [&](const ReduceScatter& o) { return others(o.group) * as_double(o.x.bytes()); },
          [&](const AllToAll& o) { return others(o.group) * as_double(o.x.bytes()); },
          [&](const AllToAllV& o) { return heavier_direction(o); },
          [&](const Broadcast& o) { return crosses(o.group) * as_double(o.y.bytes()); },
          [&](const Reduce& o) { return crosses(o.group) * as_double(o.x.bytes()); },
          [&](const Gather& o) { return others(o.group) * total(o.group, o.x); },
          [&](const Scatter& o) { return others(o.group) * total(o.group, o.y); },
          [&](const SendRecv& o) {
            const auto crosses_to = [&](int peer) { return peer >= 0 && peer != o.group.position; };
            return as_double(
                std::max(crosses_to(o.to) ? o.x.bytes() : 0, crosses_to(o.from) ? o.y.bytes() : 0));
          },
          [](const Barrier&) { return 0.0; },
          [](const Local auto&) { return 0.0; },
      },
      op);
}

double bytes_sent_of(const Op& op) {
  const auto* message = std::get_if<SendRecv>(&op);
  if (message == nullptr) return bytes_wire_of(op);
  const bool crosses = message->to >= 0 && message->to != message->group.position;
  return crosses ? as_double(message->x.bytes()) : 0.0;
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
                        [](const Communication auto& o) { return &o.group; },
                        [](const Local auto&) -> const Group* { return nullptr; },
                    },
                    op);
}

}  // namespace shardmark
