#include "profiler/nvml.hpp"

#include "core/error.hpp"
#include "core/symbols.hpp"

#include <dlfcn.h>

#include <array>
#include <utility>

namespace shardmark {
namespace {

constexpr const char* library_name = "libnvidia-ml.so.1";

Nvml load() {
  Nvml loaded;
  void* const handle = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    loaded.missing = message(library_name, " cannot be loaded (it comes with the driver)");
    return loaded;
  }
  Symbols symbols{handle};
  NvmlFunctions& f = loaded.functions;
  symbols.take(f.init, "nvmlInit_v2");
  symbols.take(f.driver_version, "nvmlSystemGetDriverVersion");
  symbols.take(f.device_by_bus_id, "nvmlDeviceGetHandleByPciBusId_v2");
  symbols.take(f.clock, "nvmlDeviceGetClockInfo");
  symbols.take(f.power, "nvmlDeviceGetPowerUsage");
  symbols.take(f.temperature, "nvmlDeviceGetTemperature");
  symbols.take(f.throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
  symbols.take(f.nvlink_state, "nvmlDeviceGetNvLinkState");
  if (!symbols.missing().empty())
    loaded.missing = message(library_name, " has no ", symbols.missing());
  else if (f.init() != 0)
    loaded.missing = message(library_name, " cannot be initialised (no driver is running)");
  return loaded;
}

/// The device, or why there is none.
std::pair<NvmlFunctions::Device, std::string> find(const Nvml& nvml, const std::string& bus_id) {
  if (!nvml.missing.empty()) return {nullptr, nvml.missing};
  NvmlFunctions::Device device = nullptr;
  if (nvml.functions.device_by_bus_id(bus_id.c_str(), &device) != 0)
    return {nullptr, message("NVML knows no GPU ", bus_id)};
  return {device, {}};
}

}  // namespace

std::vector<std::string> throttle_reasons(std::uint64_t bits) {
  constexpr std::array<std::pair<std::uint64_t, const char*>, 5> reasons{
      {{0x4, "power limit"},
       {0x8, "hardware slowdown"},
       {0x20, "temperature (driver)"},
       {0x40, "temperature (hardware)"},
       {0x80, "power brake"}}};
  std::vector<std::string> found;
  for (const auto& [bit, name] : reasons)
    if ((bits & bit) != 0) found.emplace_back(name);
  return found;
}

const Nvml& nvml() {
  static const Nvml loaded = load();
  return loaded;
}

GpuState gpu_state(const Nvml& nvml, const std::string& bus_id) {
  const auto [device, missing] = find(nvml, bus_id);
  GpuState state;
  state.missing = missing;
  if (!missing.empty()) return state;
  const NvmlFunctions& f = nvml.functions;
  constexpr int sm_clock = 1, memory_clock = 2, gpu_sensor = 0;
  // What a GPU does not say stays 0.
  const auto read = [](int code, unsigned value) {
    return code == 0 ? static_cast<int>(value) : 0;
  };
  unsigned value = 0;
  int code = f.clock(device, sm_clock, &value);
  state.sm_clock_mhz = read(code, value);
  code = f.clock(device, memory_clock, &value);
  state.memory_clock_mhz = read(code, value);
  code = f.power(device, &value);
  state.power_w = read(code, value / 1000);
  code = f.temperature(device, gpu_sensor, &value);
  state.temperature_c = read(code, value);
  unsigned long long bits = 0;
  if (f.throttle_reasons(device, &bits) == 0) state.throttled_by = throttle_reasons(bits);
  return state;
}

GpuSurroundings gpu_surroundings(const Nvml& nvml, const std::string& bus_id) {
  const auto [device, missing] = find(nvml, bus_id);
  GpuSurroundings found;
  found.missing = missing;
  if (!missing.empty()) return found;
  std::array<char, 96> text{};
  if (nvml.functions.driver_version(text.data(), text.size()) == 0)
    found.driver_version = text.data();
  constexpr unsigned most_links = 18;
  for (unsigned link = 0; link < most_links; ++link) {
    int is_active = 0;
    if (nvml.functions.nvlink_state(device, link, &is_active) == 0) found.num_nvlinks += is_active;
  }
  return found;
}

}  // namespace shardmark
