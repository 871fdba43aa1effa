#pragma once

// What tests of every program's results.csv ask.

#include "bench/harness/columns.hpp"
#include "bench/harness/csv.hpp"

#include <gmock/gmock.h>

#include <set>
#include <string>

namespace shardmark::bench {

/// What a row has in a column.
inline std::string cell_of(Tool tool, const std::string& name, const Result& result) {
  const RunIdentity run{"id", "cpu", "threads", tool};
  for (const Column& column : result_columns(tool))
    if (column.name == name) return column.cell({result, run});
  return "no such column";
}

/// Each name is there once, in the order of the golden file, and the README has the table.
inline void expect_known_columns(Tool tool, const std::string& source_dir,
                                 const std::string& golden) {
  std::string header;
  std::set<std::string> names;
  for (const Column& column : result_columns(tool)) {
    header += column.name + '\n';
    EXPECT_TRUE(names.insert(column.name).second) << column.name;
  }
  EXPECT_EQ(header, read_file(source_dir + "/tests/golden/" + golden));
  EXPECT_THAT(read_file(source_dir + "/results/README.md"),
              testing::HasSubstr(columns_markdown(tool)))
      << "put what " << name_of(tool) << " --list-columns prints into results/README.md";
}

}  // namespace shardmark::bench
