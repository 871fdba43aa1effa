#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace shardmark::bench {

struct Result;

/// Limits of the verdict rules, in the units of the columns they are compared with.
struct VerdictThresholds {
  double imbalance_ratio{1.10};       ///< slowest over fastest rank's compute time
  double bubble_pct{20};              ///< a pipeline's bubble of the window
  double communication_pct{25};       ///< exposed communication of the window
  double communication_warn_pct{20};  ///< below the limit, but worth a word
  double memory_bandwidth_pct{70};    ///< achieved bytes/s of the measured copy bandwidth
  double memory_flops_pct{30};        ///< ... while FLOP/s stay below this share of the peak
};

/// The verdict of a prediction that needs more memory than a rank of its machine has.
inline constexpr const char* does_not_fit = "does_not_fit";

/// What limits a configuration, from measured numbers.
struct Verdict {
  std::string name;    ///< imbalanced, communication_bound, latency_bound, does_not_fit, ...
  std::string reason;  ///< the numbers and one thing to try
};

// The rules that recorded runs of other programs share (bench/analyze/verdict.hpp).

/// A rule that holds, and what it costs: 100 x the time that went to it over the window.
struct Finding {
  Verdict verdict;
  double cost_pct{0};
};
/// What the window would lose if all ranks computed for as long as they do on average, in percent.
[[nodiscard]] double imbalance_pct(std::span<const double> compute_us, double window_us);
/// Ranks whose compute times are compared, and what can be done: `remedy` is given the places of
/// the slowest and the fastest, and begins with "; " or is empty.
struct ComparedRanks {
  std::span<const double> compute_us;
  std::span<const int> numbers;
  std::function<std::string(std::size_t slowest, std::size_t fastest)> remedy;
};
[[nodiscard]] std::optional<Finding> find_imbalance(const ComparedRanks& ranks, double window_us,
                                                    const VerdictThresholds& limits);
/// `what` takes `share_pct` of the window and would still take `cost_pct` with equal compute times.
[[nodiscard]] std::optional<Finding> find_communication(std::string_view what, double share_pct,
                                                        double cost_pct, std::string_view advice,
                                                        const VerdictThresholds& limits);
/// The verdict that costs most; nothing if no rule holds.
[[nodiscard]] std::optional<Verdict> costliest(std::span<const std::optional<Finding>> findings);

struct VerdictInputs {
  double latency_us{0};           ///< measured time of a 64-byte all-reduce; 0 = unknown
  double copy_bandwidth_GBps{0};  ///< measured; 0 = unknown
  double memory_bytes{0};         ///< of a rank; 0 = not asked, as a row that ran did fit
};
/// Of imbalanced, bubble_bound and communication_bound the one that costs the most time, each only
/// above its limit. Imbalance costs what the window would lose if all ranks computed for as long as
/// they do on average, the other two what they would be then. Else, in order: latency_bound (the
/// latency is more than half of a mean communication, and exposed communication at least 10 % of
/// the window: below that it limits nothing), memory_bound, compute_bound. With does_not_fit the
/// verdict of the times is in the reason.
[[nodiscard]] Verdict judge(const Result& result, const VerdictThresholds& thresholds,
                            const VerdictInputs& inputs);

}  // namespace shardmark::bench
