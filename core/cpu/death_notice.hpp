#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardmark {

/// A process of this host and what to print when it is found dead.
struct WatchedProcess {
  std::int64_t pid{0};
  std::string notice;
};

/// On SIGUSR1, looks at `processes` and prints the notices of dead ones to stderr, at most once.
/// MPICH's mpirun sends that signal when a rank was killed, and with -disable-auto-cleanup kills
/// the survivors a moment later nevertheless, often before they notice anything by themselves.
void print_death_notices_on_sigusr1(const std::vector<WatchedProcess>& processes);

}  // namespace shardmark
