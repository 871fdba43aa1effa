#pragma once

// Clocks, power and throttling of a GPU by NVML, which is loaded when it is asked for.

#include <cstdint>
#include <string>
#include <vector>

namespace shardmark {

/// How a GPU is now.
struct GpuState {
  int sm_clock_mhz{0}, memory_clock_mhz{0}, power_w{0}, temperature_c{0};
  std::vector<std::string> throttled_by;  ///< why its clocks are below what they could be
  std::string missing;                    ///< why nothing is known; empty if it is
};
/// What does not change.
struct GpuSurroundings {
  std::string driver_version;
  int num_nvlinks{0};  ///< that are up
  std::string missing;
};

/// Reasons of nvmlDeviceGetCurrentClocksThrottleReasons that slow a busy GPU down. Idle clocks and
/// clocks that somebody has set are none.
[[nodiscard]] std::vector<std::string> throttle_reasons(std::uint64_t bits);

/// The functions of NVML that are used, as its manual has them; it comes with the driver, and its
/// header with no package. All return 0 for success.
struct NvmlFunctions {
  using Device = void*;
  int (*init)(){nullptr};
  int (*driver_version)(char* text, unsigned length){nullptr};
  int (*device_by_bus_id)(const char* bus_id, Device* device){nullptr};
  int (*clock)(Device device, int type, unsigned* mhz){nullptr};
  int (*power)(Device device, unsigned* milliwatts){nullptr};
  int (*temperature)(Device device, int sensor, unsigned* celsius){nullptr};
  int (*throttle_reasons)(Device device, unsigned long long* bits){nullptr};
  int (*nvlink_state)(Device device, unsigned link, int* is_active){nullptr};
};
struct Nvml {
  NvmlFunctions functions;
  std::string missing;  ///< why it cannot be used
};
/// Loads and initialises it, once.
[[nodiscard]] const Nvml& nvml();

/// Of the GPU with that bus id ("0000:17:00.0"). Takes some ten microseconds; not while a clock
/// runs.
[[nodiscard]] GpuState gpu_state(const Nvml& nvml, const std::string& bus_id);
[[nodiscard]] GpuSurroundings gpu_surroundings(const Nvml& nvml, const std::string& bus_id);

}  // namespace shardmark
