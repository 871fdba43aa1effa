#pragma once

#include "bench/harness/result.hpp"
#include "bench/harness/tool.hpp"

#include <span>
#include <string>

namespace shardmark::bench {

/// Rises when a column changes meaning; a file of another version is not continued.
inline constexpr int schema_version = 1;

/// What a row needs besides its result.
struct RunIdentity {
  std::string run_id;
  std::string backend{"cpu"}, transport;
  Tool tool{Tool::tp};
  std::string machine{};  ///< whose times are predicted; empty: this one's are measured
  std::string device{};   ///< rank 0's, as the vendor calls it
  std::string devices{};  ///< of every rank, for run.json: a JSON list, or nothing
};
struct Row {
  const Result& result;
  const RunIdentity& run;
};

/// One column of results.csv. The list of them is the only description of the file: header, rows,
/// resume keys and the tables in results/README.md come from it.
struct Column {
  /// key: always, and part of what makes two rows the same configuration; measured: rows with
  /// times, also if a check failed, and predicted ones; communicating: those of them with several
  /// ranks; sampled: those that really ran. The cell is empty otherwise.
  enum class Holds : std::uint8_t { key, always, measured, communicating, sampled };

  /// Whose files have it.
  enum class Of : std::uint8_t {
    tp = 1,
    cp = 2,
    pp = 4,
    layers = tp | cp,
    models = tp | pp,
    all = 7
  };

  std::string name, unit, meaning;
  Holds holds{Holds::always};
  std::string (*value)(const Row&){nullptr};
  Of of{Of::all};

  [[nodiscard]] std::string cell(const Row& row) const;
};
[[nodiscard]] std::span<const Column> result_columns(Tool tool = Tool::tp);

/// The columns of kernels.csv for one kernel of a row, after the row's key columns.
struct KernelRow {
  const Row& row;
  const KernelSummary& kernel;
};
struct KernelColumn {
  std::string name, unit, meaning;
  std::string (*value)(const KernelRow&){nullptr};
};
[[nodiscard]] std::span<const KernelColumn> kernel_columns();

/// The key columns' values of a configuration, whether it was measured or not.
[[nodiscard]] std::string row_key(const Row& row);

/// The Markdown table of results/README.md: name, unit, meaning.
[[nodiscard]] std::string columns_markdown(Tool tool = Tool::tp);

}  // namespace shardmark::bench
