#include "core/host.hpp"

#include "core/error.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>

namespace shardmark {
namespace {

/// The number in an environment variable; `otherwise` when it is unset or not a number.
std::int64_t number_from(const char* variable, std::int64_t otherwise) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return otherwise;
  const std::string_view view{text};
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  return error == std::errc{} && end == view.data() + view.size() ? value : otherwise;
}

/// "VmRSS:   1234 kB" of a file of /proc, in bytes.
std::int64_t kib_field(const char* path, std::string_view key) {
  std::ifstream file{path};
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    return std::strtoll(line.c_str() + key.size(), nullptr, 10) * 1024;
  }
  return 0;
}

/// The limit in a cgroup file; none when the file is missing or says "max".
std::int64_t limit_in(const std::string& path) {
  std::ifstream file{path};
  std::int64_t limit = 0;
  return file >> limit && limit > 0 ? limit : std::numeric_limits<std::int64_t>::max();
}

/// The smallest limit from this process' cgroup up to the root, cgroup v1 or v2.
std::int64_t cgroup_limit_bytes() {
  std::int64_t limit = std::min(limit_in("/sys/fs/cgroup/memory.max"),
                                limit_in("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
  std::ifstream file{"/proc/self/cgroup"};
  for (std::string line; std::getline(file, line);) {
    const bool v2 = line.starts_with("0::");
    if (!v2 && line.find(":memory:") == std::string::npos) continue;
    std::string path = line.substr(line.rfind(':') + 1);
    for (; path.size() > 1; path.erase(path.rfind('/')))
      limit =
          std::min(limit, limit_in(v2 ? "/sys/fs/cgroup" + path + "/memory.max"
                                      : "/sys/fs/cgroup/memory" + path + "/memory.limit_in_bytes"));
  }
  return limit;
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string cpu_model() {
  std::ifstream file{"/proc/cpuinfo"};
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      return line.substr(std::min(line.find(':') + 2, line.size()));
  return "CPU";
}

int cores_available() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  return ::sched_getaffinity(0, sizeof mask, &mask) == 0 ? std::max(1, CPU_COUNT(&mask)) : 1;
}

std::int64_t memory_total_bytes() {
  return std::min(kib_field("/proc/meminfo", "MemTotal:"), cgroup_limit_bytes());
}
std::int64_t memory_resident_bytes() { return kib_field("/proc/self/status", "VmRSS:"); }
std::int64_t memory_peak_resident_bytes() { return kib_field("/proc/self/status", "VmHWM:"); }

ProcessState process_state(std::int64_t pid) {
  std::ifstream file{message("/proc/", pid, "/stat")};
  std::string line;
  if (!std::getline(file, line)) return {};
  // The second field is the command in parentheses and may hold anything, so count from its end.
  const std::size_t end = line.rfind(')');
  if (end == std::string::npos) return {};
  std::istringstream fields{line.substr(end + 1)};
  ProcessState result;
  fields >> result.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> result.start_ticks;
  return result;
}

std::string detect_launcher() {
  const auto evidence = [](std::string_view launcher, const char* variable) {
    return message(launcher, " (", variable, "=", std::getenv(variable), ")");
  };
  if (number_from("OMPI_COMM_WORLD_SIZE", 0) > 1)
    return evidence("mpirun of Open MPI", "OMPI_COMM_WORLD_SIZE");
  if (number_from("PMI_SIZE", 0) > 1) return evidence("mpirun", "PMI_SIZE");
  // A Slurm batch script sees SLURM_NTASKS as well; only srun gives its tasks a real step.
  constexpr std::int64_t first_special_step = 0xFFFFFFF0;
  const std::int64_t step = number_from("SLURM_STEP_ID", first_special_step);
  const bool in_step = step < first_special_step && std::getenv("SLURM_PROCID") != nullptr;
  for (const char* variable : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"})
    if (in_step && std::getenv(variable) != nullptr)
      return number_from(variable, 0) > 1 ? evidence("srun", variable) : std::string{};
  // Another rank than 0 proves that there are several; the variables above say it in all other
  // cases known.
  if (number_from("PMI_RANK", 0) > 0) return evidence("a PMI launcher", "PMI_RANK");
  if (number_from("PMIX_RANK", 0) > 0) return evidence("a PMIx launcher", "PMIX_RANK");
  return {};
}

bool is_single_launched() {
  return number_from("PMI_SIZE", 0) == 1 || number_from("OMPI_COMM_WORLD_SIZE", 0) == 1;
}

}  // namespace shardmark
