#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace shardmark::bench {

/// An empty folder for the running test.
[[nodiscard]] inline std::string scratch_folder() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::filesystem::path folder = std::filesystem::path{SHARDMARK_SCRATCH_DIR} / "scratch" /
                                       test->test_suite_name() / test->name();
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder.string();
}

}  // namespace shardmark::bench
