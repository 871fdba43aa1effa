#include "sim/cost_comm.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <bit>

namespace shardmark {
namespace {

double as_double(std::int64_t value) { return static_cast<double>(value); }

int ceil_log2(int count) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(count - 1)));
}

/// What the closed forms of one op need; times in us, bytes over `*_Bpus` (bytes per us).
class Forms {
 public:
  Forms(const Machine& machine, const Op& op, const Group& group)
      : machine_{machine},
        op_{op},
        group_{group},
        layout_{layout_of(machine, group)},
        n_{layout_.num_members},
        k_{layout_.num_nodes},
        g_{layout_.per_node} {
    if (k_ > 1 && !machine.has_between)
      throw InputError{message("machine ", machine.name, " is one node of ",
                               machine.ranks_per_node.value, " ranks, ", group.to_string(),
                               " spans ", k_, "; give it 'between', or use fewer ranks")};
    const Link& inside = machine.inside.of(name_of(op));
    const Link& between = machine.between.of(name_of(op));
    a_ = inside.latency_us.value;
    b_Bpus_ = inside.bandwidth_GBps.value * 1e3;
    a_between_ = between.latency_us.value;
    b_between_Bpus_ = between.bandwidth_GBps.value * 1e3;
    const double leaving_Bpus = g_ * b_between_Bpus_;
    w_Bpus_ = k_ == 1 ? b_Bpus_ : g_ == 1 ? leaving_Bpus : std::min(b_Bpus_, leaving_Bpus);
  }

  /// The latencies on the longest way round a ring.
  [[nodiscard]] double chain_us() const { return (n_ - k_) * a_ + (k_ - 1) * a_between_; }
  /// Those from the root of a tree to its leaves.
  [[nodiscard]] double tree_us() const { return (g_ - 1) * a_ + ceil_log2(k_) * a_between_; }
  /// Those of halving, doubling or dissemination.
  [[nodiscard]] double depth_us() const { return ceil_log2(g_) * a_ + ceil_log2(k_) * a_between_; }
  [[nodiscard]] double wire_us(double bytes) const { return bytes / w_Bpus_; }
  [[nodiscard]] double others() const { return as_double(n_ - 1) / as_double(n_); }

  /// One half of an all-reduce, that is an all_gather or reduce_scatter of S bytes in all.
  [[nodiscard]] std::optional<double> half_us(CommAlgorithm algorithm, double bytes) const {
    switch (algorithm) {
      case CommAlgorithm::ring:
        return chain_us() + wire_us(others() * bytes);
      case CommAlgorithm::recursive:
        return depth_us() + wire_us(others() * bytes);
      case CommAlgorithm::hierarchical:
        if (k_ == 1 || g_ == 1 || g_ * k_ != n_) return std::nullopt;
        return (g_ - 1) * (a_ + bytes / g_ / b_Bpus_) +
               (k_ - 1) * (a_between_ + bytes / n_ / b_between_Bpus_);
      case CommAlgorithm::tree:
        return std::nullopt;
    }
    return std::nullopt;
  }

  /// From or to a root that has S bytes.
  [[nodiscard]] std::optional<double> rooted_us(CommAlgorithm algorithm, double bytes) const {
    if (algorithm == CommAlgorithm::ring) return chain_us() + wire_us(bytes);
    if (algorithm == CommAlgorithm::tree) return tree_us() + wire_us(bytes);
    return std::nullopt;
  }

  [[nodiscard]] std::optional<double> all_reduce_us(CommAlgorithm algorithm, double bytes) const {
    const auto part =
        algorithm == CommAlgorithm::tree ? rooted_us(algorithm, bytes) : half_us(algorithm, bytes);
    return part ? std::optional{2 * *part} : std::nullopt;
  }

  [[nodiscard]] double message_us(int from, int to, double bytes) const {
    if (from == to) return bytes * 2 / (machine_.memory_GBps.value * 1e3);  // read and written
    const bool inside =
        machine_.node_of(group_.world_rank(from)) == machine_.node_of(group_.world_rank(to));
    return inside ? a_ + bytes / b_Bpus_ : a_between_ + bytes / b_between_Bpus_;
  }

  /// Messages with every other member; `bytes(peer)` of each.
  template <class Bytes>
  [[nodiscard]] double pairs_us(int me, const Bytes& bytes) const {
    double time_us = 0;
    for (int peer = 0; peer < n_; ++peer)
      if (peer != me) time_us += message_us(me, peer, bytes(peer));
    return time_us;
  }

  [[nodiscard]] std::optional<double> time_us(CommAlgorithm algorithm) const {
    return std::visit(
        overloaded{
            [&](const AllReduce& o) { return all_reduce_us(algorithm, as_double(o.x.bytes())); },
            [&](const AllGather& o) { return half_us(algorithm, as_double(o.y.bytes())); },
            [&](const ReduceScatter& o) { return half_us(algorithm, as_double(o.x.bytes())); },
            [&](const Broadcast& o) { return rooted_us(algorithm, as_double(o.y.bytes())); },
            [&](const Reduce& o) { return rooted_us(algorithm, as_double(o.x.bytes())); },
            [&](const AllToAll& o) -> std::optional<double> {
              return pairs_us(group_.position,
                              [&](int) { return as_double(o.x.bytes()) / as_double(n_); });
            },
            [&](const AllToAllV& o) -> std::optional<double> { return all_to_all_v_us(o); },
            [&](const Gather& o) -> std::optional<double> {
              return pairs_us(o.root, [&](int) { return as_double(o.x.bytes()); });
            },
            [&](const Scatter& o) -> std::optional<double> {
              return pairs_us(o.root, [&](int) { return as_double(o.y.bytes()); });
            },
            [&](const SendRecv& o) -> std::optional<double> {
              return o.to < 0 ? 0 : message_us(group_.position, o.to, as_double(o.x.bytes()));
            },
            [&](const Barrier&) -> std::optional<double> { return depth_us(); },
            [](const Local auto&) -> std::optional<double> { return std::nullopt; },
        },
        op_);
  }

 private:
  [[nodiscard]] double all_to_all_v_us(const AllToAllV& o) const {
    const auto count = [&](int from, int to) {
      return o.counts[static_cast<std::size_t>(from * n_ + to)] * size_of(o.x.dtype);
    };
    const int me = group_.position;
    return pairs_us(
        me, [&](int peer) { return as_double(std::max(count(me, peer), count(peer, me))); });
  }

  const Machine& machine_;
  const Op& op_;
  const Group& group_;
  Layout layout_;
  int n_, k_, g_;
  double a_{0}, b_Bpus_{0}, a_between_{0}, b_between_Bpus_{0}, w_Bpus_{0};
};

}  // namespace

Layout layout_of(const Machine& machine, const Group& group) {
  Layout layout{.num_members = group.size, .num_nodes = 0, .per_node = 0};
  int here = 0;
  for (int member = 0; member < group.size; ++member) {
    const int node = machine.node_of(group.world_rank(member));
    const bool moved = member == 0 || node != machine.node_of(group.world_rank(member - 1));
    layout.num_nodes += moved ? 1 : 0;
    here = moved ? 1 : here + 1;
    layout.per_node = std::max(layout.per_node, here);
  }
  return layout;
}

std::optional<double> collective_us(const Machine& machine, const Op& op, CommAlgorithm algorithm) {
  const Group* group = group_of(op);
  if (group == nullptr) return std::nullopt;
  if (group->size == 1) return 0;
  return Forms{machine, op, *group}.time_us(algorithm);
}

double communication_us(const Machine& machine, const Op& op) {
  const Group* group = group_of(op);
  SHARDMARK_CHECK(group != nullptr, name_of(op), " is no communication");
  if (group->size == 1) return 0;
  const Forms forms{machine, op, *group};
  std::optional<double> fastest_us;
  for (const CommAlgorithm algorithm : machine.algorithms) {
    const auto time_us = forms.time_us(algorithm);
    if (time_us && (!fastest_us || *time_us < *fastest_us)) fastest_us = time_us;
  }
  // A ring does everything, whatever else the machine's algorithms cannot do.
  if (!fastest_us) fastest_us = forms.time_us(CommAlgorithm::ring);
  const auto* message = std::get_if<SendRecv>(&op);
  if (message != nullptr && message->to < 0) return 0;
  return machine.collective_overhead_us.value + fastest_us.value();
}

}  // namespace shardmark
