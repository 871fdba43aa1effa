// Two runs of shardmark-tp, one with a rank that the fault adaptor slows: shardmark-analyze --diff
// says which rank it is, and where the others wait for it.

#include "bench/harness/csv.hpp"
#include "tests/bench/scratch.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <string>

namespace shardmark::bench {
namespace {

int run(const std::string& command, const std::string& output) {
  return std::system((command + " > " + output).c_str());
}

TEST(DiffOfRuns, NamesTheSlowedRankAndTheCollectiveThatWaits) {
  const std::string folder = scratch_folder(), out = folder + "/out";
  const std::string program = std::string{SHARDMARK_TP} +
                              " --ranks 3 --tp 3 --heads 3 --hidden 192 --ffn 192 --seq 64 "
                              "--block mlp --check off --max-time 0.1 --min-samples 2 --warmup 1 "
                              "--peak-tflops 0.1 --out " +
                              folder;
  ASSERT_EQ(run(program + "/a", out), 0);
  ASSERT_EQ(run(program + "/b --inject-fault slow:500:rank=1:op=0", out), 0);
  ASSERT_EQ(run(SHARDMARK_ANALYZE " --diff " + folder + "/a " + folder + "/b", out), 0);
  // Its two all-reduces have 64 x 192 floats each.
  EXPECT_THAT(read_file(out),
              testing::ContainsRegex("rank 1 is slower in B: .* wait .* longer for it .* in "
                                     "all_reduce of group tp.0,1,2. with 49152 bytes"));
}

}  // namespace
}  // namespace shardmark::bench
