#pragma once

#include <string>

namespace shardmark::bench {

/// What this program was built from; the commit is the one at configure time.
struct BuildInfo {
  std::string version, git_commit, compiler, flags, build_type;
  bool git_dirty{false};
};
[[nodiscard]] const BuildInfo& build_info();
/// "shardmark 0.1.0 (abc1234, uncommitted changes)"
[[nodiscard]] std::string version_text();

}  // namespace shardmark::bench
