// Inputs on which a fuzzer once stopped a reader, and a few to begin from, in every build.

#include "tests/fuzz/run_reader.hpp"

#include <gmock/gmock.h>

#include <iterator>

namespace shardmark {
namespace {

/// The number of files that were read.
int replay(const std::string& folder, Reader read) {
  int num_files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator{std::string{SHARDMARK_REGRESSIONS} + '/' + folder}) {
    SCOPED_TRACE(entry.path());
    std::ifstream file{entry.path(), std::ios::binary};
    const std::string data{std::istreambuf_iterator<char>{file}, {}};
    run_reader(read, data.data(), data.size());
    ++num_files;
  }
  return num_files;
}

TEST(Regressions, KinetoReaderSurvivesThem) { EXPECT_GT(replay("kineto", read_kineto), 0); }
TEST(Regressions, NsightReaderSurvivesThem) { EXPECT_GT(replay("nsys", read_nsys), 0); }

}  // namespace
}  // namespace shardmark
