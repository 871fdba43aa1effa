#pragma once

#include <cstdint>
#include <string>

namespace shardmark {

[[nodiscard]] std::string host_name();
/// What the vendor calls the processor; "CPU" where the system does not say.
[[nodiscard]] std::string cpu_model();
/// Cores this process may run on (its affinity mask), at least 1.
[[nodiscard]] int cores_available();
/// Memory this process may use: the machine's, or the cgroup's limit where that is lower.
[[nodiscard]] std::int64_t memory_total_bytes();
/// Resident memory of this process now, and its largest value so far. 0 where unknown.
[[nodiscard]] std::int64_t memory_resident_bytes();
[[nodiscard]] std::int64_t memory_peak_resident_bytes();

/// A process as the kernel sees it; `start_ticks` tells it from a later one with the same pid.
struct ProcessState {
  char state{'?'};  ///< R, S, D, T (stopped), Z, X; '?' when there is no such process
  std::int64_t start_ticks{0};
  /// False for a zombie, too.
  [[nodiscard]] bool alive() const { return state != '?' && state != 'Z' && state != 'X'; }
};
[[nodiscard]] ProcessState process_state(std::int64_t pid);

/// The launcher that started this process together with others, with the evidence: "mpirun
/// (PMI_SIZE=4)". Empty when there is none or it started a single rank.
[[nodiscard]] std::string detect_launcher();
/// True if a launcher was told to start one rank ("mpirun -n 1").
[[nodiscard]] bool is_single_launched();

}  // namespace shardmark
