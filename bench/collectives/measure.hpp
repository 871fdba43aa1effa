#pragma once

#include "bench/collectives/clocks.hpp"
#include "bench/collectives/workspace.hpp"
#include "bench/harness/measure.hpp"

#include <functional>
#include <vector>

namespace shardmark::bench::collectives {

/// Measures sizes on one rank of the world. All ranks call the same functions with the same
/// arguments (collective).
class Meter {
 public:
  /// All must outlive the meter; `interrupted` is polled between samples.
  Meter(const Options& options, const World& world, Workspace& workspace, const Clocks& clocks,
        Transport& transport, std::function<bool()> interrupted);

  /// One row per variant, complete but for the fit. Samples of the variants alternate, so that
  /// their ratios do not depend on the machine's drift. `chosen[i]` is what variant i's `auto`
  /// stands for.
  struct Task {
    Variant variant;
    const Plan* plan{nullptr};  ///< null: native
    std::string chosen{};
  };
  [[nodiscard]] std::vector<Row> measure(const Series& series, const Series::Size& size,
                                         const std::vector<Task>& tasks);

 private:
  struct Entry {
    Row row;
    Call call;
    Runnable runnable;
    double bytes_formula{-1};  ///< that this rank sends; -1: a plan from a file
    std::vector<double> samples_us, alone_us;
  };
  enum class Who : std::uint8_t { all, first_group };

  [[nodiscard]] Entry make_entry(const Series& series, const Series::Size& size, const Task& task);
  [[nodiscard]] double take_sample(const Runnable& runnable, int count, Who who);
  [[nodiscard]] double warm_up(Entry& entry);
  [[nodiscard]] int calls_per_sample(double call_us, const std::vector<Entry>& entries);
  /// `copy` is sampled in turn with them, unless it has no ops.
  void sample(std::vector<Entry>& entries, Entry& copy);
  void count_bytes(Entry& entry);
  void check(Entry& entry);
  void finish(Entry& entry);
  [[nodiscard]] bool takes_part(Who who) const;

  const Options& options_;
  const World& world_;
  Workspace& workspace_;
  const Clocks& clocks_;
  Transport& transport_;
  std::function<bool()> interrupted_;
};

}  // namespace shardmark::bench::collectives
