#pragma once

#include "collectives/collective.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace shardmark {

/// Which algorithm is the fastest for which size, as measured: what `auto` goes by. A text table,
///
///   collective,group_size,min_bytes,max_bytes,algorithm
///   all_reduce,4,0,32768,recursive_doubling
///   all_reduce,4,32769,,ring
///
/// with bytes as in results (total_numel times the element's size), max_bytes included and empty
/// for "no end". Lines that start with # are comments.
class ChoiceTable {
 public:
  struct Row {
    Collective collective{Collective::all_reduce};
    int group_size{2};
    std::int64_t min_bytes{0};
    std::int64_t max_bytes{-1};  ///< included; -1: no end
    std::string algorithm;       ///< "native" or a name of `algorithms`
  };

  ChoiceTable() = default;
  /// Throws InputError naming the row's problem: an algorithm that does not exist for the
  /// collective, an empty range, one that overlaps another's.
  explicit ChoiceTable(std::vector<Row> rows);

  /// The row that a size falls into; null if there is none.
  [[nodiscard]] const Row* find(Collective collective, int group_size, std::int64_t bytes) const;
  /// Its algorithm; "native" where there is no row.
  [[nodiscard]] std::string_view pick(Collective collective, int group_size,
                                      std::int64_t bytes) const;
  [[nodiscard]] const std::vector<Row>& rows() const { return rows_; }

 private:
  std::vector<Row> rows_;  ///< by collective, group size, bytes
};

[[nodiscard]] std::string to_text(const ChoiceTable& table);
/// Throws InputError with the line.
[[nodiscard]] ChoiceTable parse_choice_table(const std::string& text);

}  // namespace shardmark
