#include "core/cuda/devices.hpp"

#include "core/error.hpp"
#include "core/nearest.hpp"

#include <algorithm>
#include <iterator>
#include <vector>

namespace shardmark::cuda {
namespace {

constexpr std::string_view a100 = "NVIDIA A100 data sheet (2022)",
                           h100 = "NVIDIA H100 data sheet (2023), sparse figures halved",
                           h200 = "NVIDIA H200 data sheet (2024), sparse figures halved",
                           gh200 = "NVIDIA GH200 data sheet (2024), sparse figures halved",
                           b200 = "NVIDIA DGX B200 data sheet (2024), an eighth, sparse halved",
                           gb200 = "NVIDIA GB200 NVL72 page (2024), one GPU, sparse halved",
                           ada = "NVIDIA Ada GPU architecture white paper (2023)",
                           ampere = "NVIDIA GA102 architecture white paper (2021)";

//   name, bf16, tf32, f32, f64 (1e12 FLOP/s), memory (1e9 B/s), source
// clang-format off
constexpr DevicePeaks devices[] = {
    {"A100-SXM4-40GB",    312.0, 156.0, 19.5, 19.5, 1555, a100},
    {"A100-SXM4-80GB",    312.0, 156.0, 19.5, 19.5, 2039, a100},
    {"A100-PCIE-40GB",    312.0, 156.0, 19.5, 19.5, 1555, a100},
    {"A100 80GB PCIe",    312.0, 156.0, 19.5, 19.5, 1935, a100},
    {"H100 80GB HBM3",    989.4, 494.7, 66.9, 66.9, 3350, h100},
    {"H100 PCIe",         756.0, 378.0, 51.0, 51.0, 2000, h100},
    {"H100 NVL",          835.0, 417.5, 60.0, 60.0, 3900, h100},
    {"H200",              989.4, 494.7, 66.9, 66.9, 4800, h200},
    {"H200 NVL",          835.0, 417.5, 60.0, 60.0, 4800, h200},
    {"GH200 480GB",       989.4, 494.7, 66.9, 66.9, 4000, gh200},
    {"GH200 144G HBM3e",  989.4, 494.7, 66.9, 66.9, 4900, gh200},
    {"B200",             2250.0, 1125.0, 75.0, 37.0, 8000, b200},
    {"GB200",            2500.0, 1250.0, 80.0, 40.0, 8000, gb200},
    {"L40S",              362.0, 183.0, 91.6,  0.0,  864, "NVIDIA L40S data sheet (2023)"},
    {"L40",               181.0,  90.5, 90.5,  0.0,  864, "NVIDIA L40 data sheet (2023)"},
    {"L4",                121.0,  60.0, 30.3,  0.0,  300,
                "NVIDIA L4 data sheet (2023), sparse figures halved"},
    {"A40",               149.7,  74.8, 37.4,  0.0,  696, "NVIDIA A40 data sheet (2021)"},
    {"A30",               165.0,  82.0, 10.3, 10.3,  933, "NVIDIA A30 data sheet (2021)"},
    {"A10",               125.0,  62.5, 31.2,  0.0,  600, "NVIDIA A10 data sheet (2021)"},
    {"GeForce RTX 4090",  165.2,  82.6, 82.6,  0.0, 1008, ada},
    {"GeForce RTX 3090",   71.0,  35.6, 35.6,  0.0,  936, ampere},
    {"AMD Instinct MI300X", 1307.4, 653.7, 163.4, 163.4, 5300,
                "AMD Instinct MI300X data sheet (2023)"},
};
// clang-format on

std::string_view without_vendor(std::string_view name) {
  constexpr std::string_view vendor = "NVIDIA ";
  return name.starts_with(vendor) ? name.substr(vendor.size()) : name;
}

const DevicePeaks* find(std::string_view device_name) {
  const auto found = std::ranges::find(devices, without_vendor(device_name), &DevicePeaks::name);
  return found == std::end(devices) ? nullptr : found;
}

/// Why there is no number for a device that is not in the table.
std::string why_unknown(std::string_view device_name) {
  if (device_name.find(" MIG ") != std::string_view::npos)
    return message(device_name,
                   " is a slice of a device; no peak is stated for it, give "
                   "--peak-tflops");
  std::vector<std::string_view> names;
  for (const DevicePeaks& device : devices) names.push_back(device.name);
  return message("no peak is known for ", device_name,
                 did_you_mean(without_vendor(device_name), names), "; give --peak-tflops");
}

Peak stated(const DevicePeaks& device, double value, std::string_view what) {
  if (value > 0) return {value, std::string{device.source}, {}};
  return {0, {}, message(device.source, " states no peak of ", device.name, " for ", what)};
}

}  // namespace

std::span<const DevicePeaks> known_devices() { return devices; }

Peak peak_tflops(std::string_view device_name, DType dtype, bool allow_tf32) {
  const DevicePeaks* const device = find(device_name);
  if (device == nullptr) return {0, {}, why_unknown(device_name)};
  switch (dtype) {
    case DType::bf16:
    case DType::f16:
      return stated(*device, device->bf16_tflops, name_of(dtype));
    case DType::f32:
      return stated(*device, allow_tf32 ? device->tf32_tflops : device->f32_tflops,
                    allow_tf32 ? "tf32" : "f32");
    case DType::f64:
      return stated(*device, device->f64_tflops, name_of(dtype));
    case DType::i32:
    case DType::i8:
      break;
  }
  return {0, {}, message("matmuls of ", name_of(dtype), " are not done here")};
}

Peak peak_memory_GBps(std::string_view device_name) {
  const DevicePeaks* const device = find(device_name);
  if (device == nullptr) return {0, {}, why_unknown(device_name)};
  return stated(*device, device->memory_GBps, "memory");
}

}  // namespace shardmark::cuda
