#pragma once

#include "bench/analyze/diff.hpp"
#include "bench/analyze/report.hpp"

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace shardmark::bench::analyze {

/// What was read and found, without the tables: files, ranks, clocks, warnings, the verdict.
[[nodiscard]] nlohmann::ordered_json head_json(const Report& report);

/// The head, and each of tables_of as a list of objects with the same names and values; a cell that
/// is empty in CSV is left out. Bytes that are not UTF-8 are replaced.
[[nodiscard]] std::string json_text(const Report& report);

/// What changed between two runs.
[[nodiscard]] std::string diff_json_text(const Options& options, const RunDiff& diff);

/// As text; bytes that are not UTF-8 are replaced.
[[nodiscard]] std::string to_text(const nlohmann::ordered_json& json);

}  // namespace shardmark::bench::analyze
