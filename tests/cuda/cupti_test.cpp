// The collector over functions that stand in for CUPTI: buffers of records come back from a flush.

#include "profiler/cupti.hpp"

#include "profiler/cupti_functions.hpp"

#include <gmock/gmock.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace shardmark {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

/// CUPTI calls functions without a context, so that the pretended one is global, too.
struct Fake {
  CUpti_BuffersCallbackRequestFunc request{nullptr};
  CUpti_BuffersCallbackCompleteFunc complete{nullptr};
  std::vector<std::uint64_t> externals;  ///< pushed
  std::vector<std::vector<std::uint8_t>> records;
  std::uint32_t correlation{0};
  std::size_t num_dropped{0};
  int num_enabled{0};
  CUptiResult enabling{CUPTI_SUCCESS};
  std::size_t position{0};  ///< in the buffer that is being read
};
Fake fake;

std::uint64_t device_now() {
  return 1'000'000 +
         static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

template <class Record>
void add(const Record& record) {
  std::vector<std::uint8_t> bytes(sizeof record);
  std::memcpy(bytes.data(), &record, sizeof record);
  fake.records.push_back(std::move(bytes));
}
/// A link to the innermost op, if one is being enqueued.
std::uint32_t enqueued() {
  const std::uint32_t correlation = ++fake.correlation;
  if (!fake.externals.empty()) {
    CUpti_ActivityExternalCorrelation link{};
    link.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    link.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
    link.externalId = fake.externals.back();
    link.correlationId = correlation;
    add(link);
  }
  return correlation;
}
void launch(const char* name, std::uint64_t start_ns, std::uint64_t end_ns) {
  CUpti_ActivityKernel10 kernel{};
  kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  kernel.correlationId = enqueued();
  kernel.name = name;
  kernel.start = start_ns;
  kernel.end = end_ns;
  add(kernel);
}
void copy(std::uint64_t start_ns, std::uint64_t end_ns) {
  CUpti_ActivityMemcpy6 work{};
  work.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  work.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
  work.correlationId = enqueued();
  work.start = start_ns;
  work.end = end_ns;
  add(work);
}
void set(std::uint64_t start_ns, std::uint64_t end_ns) {
  CUpti_ActivityMemset4 work{};
  work.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  work.correlationId = enqueued();
  work.start = start_ns;
  work.end = end_ns;
  add(work);
}

std::size_t size_of_record(const std::uint8_t* record) {
  CUpti_ActivityKind kind{};
  std::memcpy(&kind, record, sizeof kind);
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return sizeof(CUpti_ActivityMemset4);
    default:
      return sizeof(CUpti_ActivityExternalCorrelation);
  }
}

/// Hands over what there is, in buffers of the collector; the last records first.
CUptiResult CUPTIAPI flush(std::uint32_t) {
  while (!fake.records.empty()) {
    std::uint8_t* buffer = nullptr;
    std::size_t bytes = 0, most = 0, used = 0;
    fake.request(&buffer, &bytes, &most);
    while (!fake.records.empty() && used + fake.records.back().size() <= bytes) {
      std::memcpy(buffer + used, fake.records.back().data(), fake.records.back().size());
      used += fake.records.back().size();
      fake.records.pop_back();
    }
    fake.position = 0;
    fake.complete(nullptr, 0, buffer, bytes, used);
  }
  return CUPTI_SUCCESS;
}

CuptiFunctions functions() {
  CuptiFunctions f;
  f.result_string = [](CUptiResult code, const char** text) {
    *text = code == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ? "subscribed" : "some error";
    return CUPTI_SUCCESS;
  };
  f.timestamp = [](std::uint64_t* time) {
    *time = device_now();
    return CUPTI_SUCCESS;
  };
  f.register_callbacks = [](CUpti_BuffersCallbackRequestFunc request,
                            CUpti_BuffersCallbackCompleteFunc complete) {
    fake.request = request;
    fake.complete = complete;
    return CUPTI_SUCCESS;
  };
  f.enable = [](CUpti_ActivityKind) {
    if (fake.enabling == CUPTI_SUCCESS) ++fake.num_enabled;
    return fake.enabling;
  };
  f.disable = [](CUpti_ActivityKind) {
    --fake.num_enabled;
    return CUPTI_SUCCESS;
  };
  f.flush_all = flush;
  f.next_record = [](std::uint8_t* buffer, std::size_t valid, CUpti_Activity** record) {
    if (fake.position >= valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = reinterpret_cast<CUpti_Activity*>(buffer + fake.position);
    fake.position += size_of_record(buffer + fake.position);
    return CUPTI_SUCCESS;
  };
  f.num_dropped = [](CUcontext, std::uint32_t, std::size_t* count) {
    *count = std::exchange(fake.num_dropped, 0);
    return CUPTI_SUCCESS;
  };
  f.push = [](CUpti_ExternalCorrelationKind, std::uint64_t id) {
    fake.externals.push_back(id);
    return CUPTI_SUCCESS;
  };
  f.pop = [](CUpti_ExternalCorrelationKind, std::uint64_t* last) {
    if (fake.externals.empty()) return CUPTI_ERROR_QUEUE_EMPTY;
    *last = fake.externals.back();
    fake.externals.pop_back();
    return CUPTI_SUCCESS;
  };
  return f;
}

struct Kept final : KernelSink {
  void on_kernel(const KernelRecord& record) override { kernels.push_back(record); }
  std::vector<KernelRecord> kernels;
};

OpRecord op(std::uint32_t seq, Lane lane, const Op& what) {
  static const std::string path = "step";
  return {seq, lane, &path, what};
}
const Op compute = Fill{}, communication = AllReduce{};

class CuptiCollector : public testing::Test {
 protected:
  void SetUp() override {
    fake = {};
    for (const char* variable : {"NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH"})
      unsetenv(variable);
  }
};

TEST_F(CuptiCollector, GivesEveryKernelItsOpOnTheHostsClock) {
  const CuptiStart start = start_cupti(functions());
  ASSERT_NE(start.timer, nullptr) << start.missing;
  EXPECT_EQ(fake.num_enabled, 4);
  const std::uint64_t now = device_now();
  launch("before any op", now, now + 5);
  start.timer->before_op(op(3, Lane::compute, compute));
  launch("_Z4gemmv", now + 100, now + 200);
  set(now + 50, now + 60);
  start.timer->after_op(op(3, Lane::compute, compute));
  start.timer->before_op(op(4, Lane::tp, communication));
  copy(now + 300, now + 400);
  start.timer->after_op(op(4, Lane::tp, communication));
  Kept kept;
  start.timer->collect(kept);
  ASSERT_EQ(kept.kernels.size(), 3U);
  EXPECT_STREQ(kept.kernels[0].name, "memset");
  EXPECT_STREQ(kept.kernels[1].name, "gemm()");
  EXPECT_STREQ(kept.kernels[2].name, "memcpy device to host");
  EXPECT_EQ(kept.kernels[1].op_seq, 3U);
  EXPECT_EQ(kept.kernels[1].kind, OpKind::compute);
  EXPECT_EQ(kept.kernels[2].op_seq, 4U);
  EXPECT_EQ(kept.kernels[2].lane, Lane::tp);
  EXPECT_EQ(kept.kernels[2].kind, OpKind::communication);
  EXPECT_EQ(kept.kernels[1].end_ns - kept.kernels[1].start_ns, 100);
  const CuptiTimer::Report& report = start.timer->report();
  EXPECT_EQ(report.num_without_op, 1U);
  const std::int64_t host_ns = static_cast<std::int64_t>(now + 100) - 1'000'000;
  EXPECT_LE(std::abs(kept.kernels[1].start_ns - host_ns), report.clock_bound_ns + 1);
  EXPECT_TRUE(fake.externals.empty());
}

/// An op in two parts, as communication through the host is, is one op.
TEST_F(CuptiCollector, AnOpMayBeEnqueuedInParts) {
  const CuptiStart start = start_cupti(functions());
  for (int part = 0; part < 2; ++part) {
    start.timer->before_op(op(7, Lane::tp, communication));
    copy(10, 20);
    start.timer->after_op(op(7, Lane::tp, communication));
  }
  Kept kept;
  start.timer->collect(kept);
  EXPECT_EQ(kept.kernels.size(), 2U);
  EXPECT_EQ(start.timer->report().num_without_op, 0U);
}

/// Ranks of one process share CUPTI; each gets what its own ops enqueued.
TEST_F(CuptiCollector, RanksOfAProcessDoNotTakeEachOthersKernels) {
  const CuptiStart first = start_cupti(functions()), second = start_cupti(functions());
  EXPECT_EQ(fake.num_enabled, 4) << "switched on once";
  for (const CuptiStart* start : {&first, &second}) {
    start->timer->before_op(op(1, Lane::compute, compute));
    launch(start == &first ? "first" : "second", 10, 20);
    start->timer->after_op(op(1, Lane::compute, compute));
  }
  Kept of_first, of_second;
  first.timer->collect(of_first);
  second.timer->collect(of_second);
  ASSERT_EQ(of_first.kernels.size(), 1U);
  ASSERT_EQ(of_second.kernels.size(), 1U);
  EXPECT_STREQ(of_first.kernels[0].name, "first");
  EXPECT_STREQ(of_second.kernels[0].name, "second");
  EXPECT_EQ(first.timer->report().num_without_op + second.timer->report().num_without_op, 0U);
}

TEST_F(CuptiCollector, IsSwitchedOffWithItsLastTimerAndOnAgain) {
  for (int round = 0; round < 3; ++round) {
    {
      const CuptiStart start = start_cupti(functions());
      ASSERT_NE(start.timer, nullptr);
      EXPECT_EQ(fake.num_enabled, 4);
      launch("left over", 1, 2);  // nobody collects it
    }
    EXPECT_EQ(fake.num_enabled, 0);
  }
  const CuptiStart start = start_cupti(functions());
  Kept kept;
  start.timer->collect(kept);
  EXPECT_THAT(kept.kernels, IsEmpty());
  EXPECT_EQ(start.timer->report().num_without_op, 0U) << "left over from an earlier timer";
}

/// More records than a buffer holds, and some that CUPTI lost.
TEST_F(CuptiCollector, ManyBuffersAndDroppedRecordsAreCounted) {
  const CuptiStart start = start_cupti(functions());
  constexpr int count = 20'000;
  start.timer->before_op(op(1, Lane::compute, compute));
  for (int i = 0; i < count; ++i) launch("k", 10, 20);
  start.timer->after_op(op(1, Lane::compute, compute));
  fake.num_dropped = 12;
  Kept kept;
  start.timer->collect(kept);
  EXPECT_EQ(kept.kernels.size(), static_cast<std::size_t>(count));
  EXPECT_EQ(start.timer->report().num_dropped, 12U);
  EXPECT_THAT(warning_of(start.timer->report()), HasSubstr("12 records were dropped"));
}

/// Without CUPTI's clock no time can be told, which is said.
TEST_F(CuptiCollector, AClockThatCannotBeReadMakesNoTimes) {
  CuptiFunctions without_clock = functions();
  without_clock.timestamp = [](std::uint64_t*) { return CUPTI_ERROR_UNKNOWN; };
  const CuptiStart start = start_cupti(without_clock);
  start.timer->before_op(op(1, Lane::compute, compute));
  launch("k", 10, 20);
  start.timer->after_op(op(1, Lane::compute, compute));
  Kept kept;
  start.timer->collect(kept);
  EXPECT_THAT(kept.kernels, IsEmpty());
  EXPECT_EQ(start.timer->report().num_impossible, 1U);
}

TEST_F(CuptiCollector, AnotherProfilerIsTheReason) {
  fake.enabling = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  EXPECT_THAT(start_cupti(functions()).missing,
              testing::AllOf(HasSubstr("subscribed"), HasSubstr("another profiler")));
  fake.enabling = CUPTI_ERROR_UNKNOWN;
  const CuptiStart failed = start_cupti(functions());
  EXPECT_EQ(failed.timer, nullptr);
  EXPECT_THAT(failed.missing, HasSubstr("some error"));
  fake.enabling = CUPTI_SUCCESS;
  setenv("NSYS_PROFILING_SESSION_ID", "42", 1);
  EXPECT_THAT(start_cupti(functions()).missing, HasSubstr("NSYS_PROFILING_SESSION_ID"));
  unsetenv("NSYS_PROFILING_SESSION_ID");
  EXPECT_NE(start_cupti(functions()).timer, nullptr);
}

}  // namespace
}  // namespace shardmark
