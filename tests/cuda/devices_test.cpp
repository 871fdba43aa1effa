#include "core/cuda/devices.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace shardmark::cuda {
namespace {

TEST(Devices, PeaksAreFoundByTheRuntimesName) {
  const Peak peak = peak_tflops("NVIDIA H200", DType::bf16);
  EXPECT_EQ(peak.value, 989.4);
  EXPECT_NE(peak.source.find("data sheet"), std::string::npos);
  EXPECT_EQ(peak.unknown, "");
  EXPECT_EQ(peak_memory_GBps("NVIDIA H200").value, 4800);
  EXPECT_EQ(peak_tflops("H200", DType::f16).value, 989.4);
}

TEST(Devices, Tf32IsAnotherPeakThanF32) {
  EXPECT_EQ(peak_tflops("NVIDIA A100-SXM4-80GB", DType::f32).value, 19.5);
  EXPECT_EQ(peak_tflops("NVIDIA A100-SXM4-80GB", DType::f32, true).value, 156);
  EXPECT_EQ(peak_tflops("NVIDIA A100-SXM4-80GB", DType::bf16, true).value, 312);
}

TEST(Devices, VariantsOfAChipDiffer) {
  EXPECT_NE(peak_tflops("NVIDIA H100 PCIe", DType::bf16).value,
            peak_tflops("NVIDIA H100 80GB HBM3", DType::bf16).value);
  EXPECT_NE(peak_memory_GBps("NVIDIA H200").value, peak_memory_GBps("NVIDIA H100 NVL").value);
}

TEST(Devices, OthersMakersStandUnderTheirFullName) {
  EXPECT_EQ(peak_tflops("AMD Instinct MI300X", DType::bf16).value, 1307.4);
  EXPECT_EQ(peak_memory_GBps("AMD Instinct MI300X").value, 5300);
}

/// No number is guessed from a name that merely contains a known one.
TEST(Devices, AnUnknownDeviceHasAReasonInsteadOfANumber) {
  for (const char* name : {"NVIDIA H200X", "NVIDIA H100 Next", "Radeon", ""}) {
    const Peak peak = peak_tflops(name, DType::bf16);
    EXPECT_EQ(peak.value, 0) << name;
    EXPECT_NE(peak.unknown.find("--peak-tflops"), std::string::npos) << name;
  }
  EXPECT_NE(peak_tflops("NVIDIA H200X", DType::bf16).unknown.find("H200?"), std::string::npos);
  const Peak slice = peak_tflops("NVIDIA A100-SXM4-80GB MIG 1g.10gb", DType::bf16);
  EXPECT_NE(slice.unknown.find("slice"), std::string::npos);
}

TEST(Devices, WhatASourceDoesNotStateIsSaid) {
  EXPECT_NE(peak_tflops("NVIDIA L40S", DType::f64).unknown.find("f64"), std::string::npos);
  EXPECT_NE(peak_tflops("NVIDIA L40S", DType::i32).unknown.find("i32"), std::string::npos);
}

TEST(Devices, EveryEntryIsCompleteAndPlausible) {
  std::set<std::string_view> names;
  for (const DevicePeaks& device : known_devices()) {
    EXPECT_TRUE(names.insert(device.name).second) << device.name << " is listed twice";
    EXPECT_FALSE(device.source.empty()) << device.name;
    EXPECT_GT(device.memory_GBps, 100) << device.name;
    EXPECT_GE(device.bf16_tflops, 1.9 * device.tf32_tflops) << device.name;
    EXPECT_GE(device.tf32_tflops, 0.99 * device.f32_tflops) << device.name;
    EXPECT_GT(device.f32_tflops, 1) << device.name;
  }
}

}  // namespace
}  // namespace shardmark::cuda
