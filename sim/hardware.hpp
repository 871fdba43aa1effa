#pragma once

#include "core/types.hpp"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardmark {

/// A number of a machine file and where it comes from: a data sheet, a measurement, an assumption.
struct Fact {
  double value{0};
  std::string source{};
};

/// What one kind of op achieves by the size of a call: FLOP/s by FLOPs or bytes/s by bytes moved.
/// Between two points the rate follows a power law, beyond them it stays that of the nearest.
struct Rates {
  struct Point {
    double size{0};  ///< FLOPs, or bytes of the operands (Work::flops, Work::bytes_memory)
    double rate{0};  ///< TFLOP/s, or GB/s
  };
  enum class Of : std::uint8_t { flops, bytes };
  std::string op{"any"};     ///< as name_of(op) names it, or "any"
  std::string dtype{"any"};  ///< as name_of(dtype) names it, or "any"
  Of of{Of::flops};
  std::vector<Point> points{};  ///< by size, at least one
  std::string source{};

  [[nodiscard]] double at(double size) const;
};

/// The way from one rank to another: a message of S bytes takes latency + S / bandwidth.
struct Link {
  Fact latency_us, bandwidth_GBps;
};
/// The links of one kind, each rank having its own. A collective that was measured apart has its
/// own numbers, per step and per byte of its algorithm (cost_comm.hpp).
struct Network {
  Link link;
  std::map<std::string, Link> collectives{};  ///< by op name
  [[nodiscard]] const Link& of(std::string_view op) const;
};

/// What a collective is done by; the closed forms are in cost_comm.hpp.
enum class CommAlgorithm : std::uint8_t { ring, tree, recursive, hierarchical };
inline constexpr std::size_t num_comm_algorithms = 4;
[[nodiscard]] std::string_view name_of(CommAlgorithm algorithm);

/// A cluster of equal nodes as its machine file describes it (README.md shows one). Ranks fill the
/// nodes in order: rank r is on node r / ranks_per_node.
struct Machine {
  std::string name, about;
  std::map<std::string, Fact> peaks_tflops;  ///< of one rank, dense, by dtype
  std::vector<Rates> rates;
  Fact memory_GBps;               ///< of one rank
  std::optional<Fact> memory_GB;  ///< of one rank; without, it is not asked what fits
  Fact launch_overhead_us;        ///< added to every compute op
  Fact ranks_per_node;
  Network inside;
  Network between;                        ///< looked at only if `has_between`
  bool has_between{false};                ///< without, the machine is one node
  Fact collective_overhead_us;            ///< added to every communication
  std::vector<CommAlgorithm> algorithms;  ///< what collectives may use; the fastest one counts
  /// 1: communication runs beside compute. 0: the same core moves the bytes, so collectives of one
  /// rank and its compute take turns.
  Fact overlap;

  [[nodiscard]] int node_of(int rank) const {
    return rank / static_cast<int>(ranks_per_node.value);
  }
  /// Throws InputError naming the dtypes that the machine has.
  [[nodiscard]] double peak_tflops(DType dtype) const;
  /// The most specific table: of this op and dtype, this op, this dtype, any; null if there is
  /// none.
  [[nodiscard]] const Rates* find_rates(std::string_view op, DType dtype, Rates::Of of) const;
};

/// Reads a machine file; `where` names it in errors. Throws InputError naming the key and what is
/// allowed: a key that is unknown, missing or given twice, a wrong unit, a number that is negative,
/// a time or rate no machine has, an absent source, a rate above the peak.
[[nodiscard]] Machine parse_machine(const std::string& text, const std::string& where);
/// The text of a machine file; parse_machine gives the same machine back.
[[nodiscard]] std::string to_json(const Machine& machine);

/// The machines that come with shardmark.
[[nodiscard]] std::vector<std::string> machine_names();
/// One of these, or the machine of a file. Throws InputError when it is neither, or empty.
[[nodiscard]] Machine load_machine(const std::string& name_or_path);

}  // namespace shardmark
