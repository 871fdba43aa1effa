// What CUPTI and NVML say, from constructed records and a library that pretends.

#include "profiler/cupti.hpp"
#include "profiler/cupti_records.hpp"
#include "profiler/nvml.hpp"

#include <gmock/gmock.h>

#include <cstring>
#include <string>
#include <vector>

namespace shardmark {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::vector<TimedOp> ops{{1, 10, Lane::compute, OpKind::compute},
                               {2, 11, Lane::tp, OpKind::communication}};

/// Correlation 5 is of op 1, 6 and 7 are of op 2.
CuptiRecords three_kernels() {
  return {{{7, "ncclKernel", 300, 400}, {5, "gemm", 100, 200}, {6, "memcpy", 250, 260}},
          {{6, 2}, {5, 1}, {7, 2}},
          0};
}

TEST(Cupti, WorkIsJoinedWithItsOpInAnyOrder) {
  const JoinedWork joined = join(three_kernels(), ops, 1000);
  ASSERT_EQ(joined.kernels.size(), 3U);
  const KernelRecord& first = joined.kernels[0];
  EXPECT_EQ(first.op_seq, 10U);
  EXPECT_STREQ(first.name, "gemm");
  EXPECT_EQ(first.kind, OpKind::compute);
  EXPECT_EQ(first.start_ns, 1100);
  EXPECT_EQ(first.end_ns, 1200);
  // Its op says what a kernel is, not its name.
  EXPECT_EQ(joined.kernels[1].kind, OpKind::communication);
  EXPECT_STREQ(joined.kernels[1].name, "memcpy");
  EXPECT_EQ(joined.kernels[1].lane, Lane::tp);
  EXPECT_EQ(joined.kernels[2].op_seq, 11U);
  EXPECT_EQ(joined.num_without_op + joined.num_impossible, 0U);
}

TEST(Cupti, WorkWithoutAnOpIsCountedAndLeftOut) {
  CuptiRecords records = three_kernels();
  records.links.erase(records.links.begin());     // correlation missing
  records.work.push_back({99, "foreign", 1, 2});  // nobody's
  records.links.push_back({98, 77});              // of an op that was not asked for
  records.work.push_back({98, "somebody's", 1, 2});
  const JoinedWork joined = join(records, ops, 0);
  EXPECT_EQ(joined.kernels.size(), 2U);
  EXPECT_EQ(joined.num_without_op, 3U);
}

TEST(Cupti, ImpossibleTimesAreCountedAndLeftOut) {
  CuptiRecords records = three_kernels();
  records.work[0].end_ns = 299;
  records.work[1].start_ns = 0;
  const JoinedWork joined = join(records, ops, 0);
  EXPECT_EQ(joined.kernels.size(), 1U);
  EXPECT_EQ(joined.num_impossible, 2U);
  records.work[2].end_ns = records.work[2].start_ns;
  EXPECT_EQ(join(records, ops, 0).kernels.size(), 1U) << "zero duration is possible";
}

TEST(Cupti, NamesOutliveTheirRecords) {
  const char* name = nullptr;
  {
    std::string text = "kernel";
    name = kept_name(text);
    text = "overwritten";
  }
  EXPECT_STREQ(name, "kernel");
  EXPECT_EQ(kept_name("kernel"), name);
}

TEST(Cupti, ClocksAreRelatedByTheShortestReading) {
  const std::vector<ClockReading> readings{
      {1000, 1400, 200}, {2000, 2020, 1010}, {3000, 3100, 2100}};
  const ClockRelation clocks = relate(readings);
  EXPECT_EQ(clocks.offset_ns, 1000);
  EXPECT_EQ(clocks.bound_ns, 10);
}

TEST(Cupti, AReportSaysWhatIsWrong) {
  EXPECT_THAT(warning_of({}), IsEmpty());
  EXPECT_THAT(warning_of({3, 0, 0, 0}), HasSubstr("3 records were dropped"));
  EXPECT_EQ(warning_of({0, 2, 1, 0}),
            "CUPTI: 2 kernels or copies belong to no op, 1 have impossible times");
}

TEST(Cupti, WithoutItThereIsAReason) {
  const CuptiStart start = start_cupti();
  EXPECT_EQ(start.timer == nullptr, !start.missing.empty()) << start.missing;
}

/// NVML of a machine with one GPU that is too hot.
Nvml pretended() {
  NvmlFunctions f;
  f.driver_version = [](char* text, unsigned length) {
    std::strncpy(text, "580.65.06", length);
    return 0;
  };
  f.device_by_bus_id = [](const char* bus_id, NvmlFunctions::Device* device) {
    static int gpu = 0;
    *device = &gpu;
    return std::strcmp(bus_id, "0000:17:00.0") == 0 ? 0 : 6;
  };
  f.clock = [](NvmlFunctions::Device, int type, unsigned* mhz) {
    *mhz = type == 1 ? 1305 : 2619;
    return 0;
  };
  f.power = [](NvmlFunctions::Device, unsigned* milliwatts) {
    *milliwatts = 699'900;
    return 0;
  };
  f.temperature = [](NvmlFunctions::Device, int, unsigned*) { return 3; };  // not supported
  f.throttle_reasons = [](NvmlFunctions::Device, unsigned long long* bits) {
    *bits = 0x1 | 0x4 | 0x40;
    return 0;
  };
  f.nvlink_state = [](NvmlFunctions::Device, unsigned link, int* is_active) {
    *is_active = link < 12 ? 1 : 0;
    return link < 16 ? 0 : 2;
  };
  return {f, {}};
}

TEST(Nvml, AGpuSaysHowItIs) {
  const GpuState state = gpu_state(pretended(), "0000:17:00.0");
  EXPECT_THAT(state.missing, IsEmpty());
  EXPECT_EQ(state.sm_clock_mhz, 1305);
  EXPECT_EQ(state.memory_clock_mhz, 2619);
  EXPECT_EQ(state.power_w, 699);
  EXPECT_EQ(state.temperature_c, 0) << "what it does not say stays 0";
  EXPECT_THAT(state.throttled_by, ElementsAre("power limit", "temperature (hardware)"));
  const GpuSurroundings surroundings = gpu_surroundings(pretended(), "0000:17:00.0");
  EXPECT_EQ(surroundings.driver_version, "580.65.06");
  EXPECT_EQ(surroundings.num_nvlinks, 12);
}

TEST(Nvml, AnUnknownGpuOrNoLibraryIsAReason) {
  EXPECT_THAT(gpu_state(pretended(), "0000:ff:00.0").missing, HasSubstr("0000:ff:00.0"));
  EXPECT_EQ(gpu_state({{}, "no library"}, "0000:17:00.0").missing, "no library");
  EXPECT_EQ(gpu_surroundings({{}, "no library"}, "").missing, "no library");
  if (!nvml().missing.empty()) {
    EXPECT_THAT(nvml().missing, HasSubstr("libnvidia-ml"));
  }
}

TEST(Nvml, IdleClocksAndSetClocksAreNoThrottling) {
  EXPECT_THAT(throttle_reasons(0x1 | 0x2 | 0x10 | 0x100), IsEmpty());
  EXPECT_THAT(throttle_reasons(0x8 | 0x20 | 0x80),
              ElementsAre("hardware slowdown", "temperature (driver)", "power brake"));
}

}  // namespace
}  // namespace shardmark
