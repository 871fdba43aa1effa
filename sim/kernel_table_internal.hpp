#pragma once

#include <string>
#include <vector>

namespace shardmark {

/// A line of kernels.csv, per call: what one rank's calls of an op at one place of the program took
/// on average.
struct KernelRow {
  std::string place;  ///< configuration, path, op and implementation; equal on all ranks
  std::string op, dtype, kind;
  bool is_pipeline_message{false};
  int group_size{1};     ///< of a communication
  bool overlaps{false};  ///< the configuration runs communication beside compute
  double time_us{0}, flops{0}, bytes_memory{0}, bytes_wire{0};
};
/// Throws InputError naming a missing column or the line that is malformed.
[[nodiscard]] std::vector<KernelRow> parse_kernels(const std::string& csv);

}  // namespace shardmark
