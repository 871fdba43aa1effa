#pragma once

#include "bench/collectives/options.hpp"
#include "core/transport.hpp"

#include <iosfwd>
#include <span>
#include <string>
#include <vector>

namespace shardmark::bench::collectives {

/// stdout as nccl-tests writes it: header, one line per size with an out-of-place and an in-place
/// half, footer. What is ours follows its columns or stands in comment lines.
class Table {
 public:
  Table(std::ostream& out, const Options& options) : out_{out}, options_{options} {}

  /// What all numbers share, once.
  void conventions(const std::vector<std::string>& notices);
  /// Header of one collective; `groups[rank]` is the group a rank is in.
  void begin(Collective collective, const std::vector<Endpoint>& endpoints,
             std::span<const int> groups, const std::string& device);
  /// The rows of one size and algorithm: out of place, and in place if that was measured.
  void add(const Row& out_of_place, const Row* in_place);
  /// Rows that differ from `row` in their size only, up to `last_bytes`.
  void skip(const Row& row, std::int64_t last_bytes);
  void note(const std::string& notice);
  /// Expected times of a series, as comments behind the footer.
  void conclude(std::span<const Row> rows, const std::vector<std::string>& fits);
  /// Footer of one collective.
  void end();

 private:
  [[nodiscard]] std::string half(const Row* row) const;

  std::ostream& out_;
  const Options& options_;
  std::string explanation_;  ///< of the series so far
  double busbw_sum_{0};
  int busbw_count_{0};
  std::int64_t num_wrong_{0};
};

}  // namespace shardmark::bench::collectives
