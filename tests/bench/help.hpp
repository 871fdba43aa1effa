#pragma once

// What tests of every program's options ask of its help.

#include "bench/harness/csv.hpp"
#include "bench/harness/tool.hpp"

#include <gmock/gmock.h>

#include <string>

namespace shardmark::bench {

inline void expect_golden_help(Tool tool, const std::string& source_dir, const std::string& help) {
  const std::string name = std::string{name_of(tool)} + "_help.txt";
  EXPECT_EQ(help, read_file(source_dir + "/tests/golden/" + name))
      << "if the change is wanted: " << name_of(tool) << " --help > tests/golden/" << name;
}

inline void expect_example_of_every_option(const std::string& help) {
  std::size_t num_options = 0;
  for (std::size_t at = help.find("\n  -"); at != std::string::npos;
       at = help.find("\n  -", at + 1)) {
    const std::string name = help.substr(at + 3, help.find_first_of(" \n,", at + 3) - at - 3);
    if (name == "-h") continue;
    EXPECT_THAT(help, testing::HasSubstr("example: " + name));
    ++num_options;
  }
  EXPECT_GT(num_options, 45U);
}

}  // namespace shardmark::bench
