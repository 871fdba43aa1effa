#include "profiler/cupti.hpp"

#include "core/error.hpp"
#include "core/symbols.hpp"
#include "profiler/cupti_functions.hpp"
#include "profiler/cupti_records.hpp"

#include <cxxabi.h>
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <unordered_set>
#include <utility>
#include <vector>

namespace shardmark {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 20U;
constexpr std::array kinds{CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                           CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};

std::string demangled(const char* name) {
  if (name == nullptr) return "unnamed kernel";
  int status = 0;
  char* const text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 ? text : name;
  std::free(text);
  return result;
}

std::string copy_name(std::uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "memcpy host to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "memcpy device to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "memcpy device to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return "memcpy peer to peer";
    default:
      return "memcpy";
  }
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// CUPTI is one for the process, ranks as threads share it. Buffers come on a thread of CUPTI's.
class Collector {
 public:
  static Collector& instance() {
    static Collector collector;
    return collector;
  }

  /// Why CUPTI cannot be switched on; empty if it is on.
  std::string switch_on(const CuptiFunctions& functions) {
    const std::lock_guard lock{switching_};
    if (num_users_ > 0) {
      ++num_users_;
      return {};
    }
    functions_ = functions;
    CUptiResult code = functions_.register_callbacks(request, complete);
    for (std::size_t i = 0; code == CUPTI_SUCCESS && i < kinds.size(); ++i)
      code = functions_.enable(kinds[i]);
    if (code != CUPTI_SUCCESS) {
      for (const CUpti_ActivityKind kind : kinds) (void)functions_.disable(kind);
      return text_of(code);
    }
    ++num_users_;
    return {};
  }
  void switch_off() noexcept {
    const std::lock_guard lock{switching_};
    if (--num_users_ > 0) return;
    for (const CUpti_ActivityKind kind : kinds) (void)functions_.disable(kind);
    (void)functions_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    const std::lock_guard keep{mutex_};
    records_ = {};
  }

  /// Everything whose external id has this tag, and once what has none.
  CuptiRecords take(std::uint32_t tag) {
    (void)functions_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    const std::lock_guard lock{mutex_};
    CuptiRecords taken;
    taken.num_dropped = std::exchange(records_.num_dropped, 0);
    std::unordered_set<std::uint32_t> mine, others;
    std::vector<CuptiLink> left_links;
    for (const CuptiLink& link : records_.links) {
      const bool is_mine = link.external >> 32U == tag;
      (is_mine ? mine : others).insert(link.correlation);
      (is_mine ? taken.links : left_links).push_back(link);
    }
    std::vector<CuptiWork> left;
    for (CuptiWork& work : records_.work) {
      const bool is_others = others.contains(work.correlation) && !mine.contains(work.correlation);
      (is_others ? left : taken.work).push_back(std::move(work));
    }
    records_.links = std::move(left_links);
    records_.work = std::move(left);
    return taken;
  }

  [[nodiscard]] const CuptiFunctions& functions() const { return functions_; }
  [[nodiscard]] std::string text_of(CUptiResult code) const {
    const char* text = nullptr;
    if (functions_.result_string(code, &text) != CUPTI_SUCCESS) text = "unknown error";
    return message("CUPTI cannot be used: ", text,
                   code == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
                       ? " (another profiler uses it)"
                       : "");
  }

 private:
  static void CUPTIAPI request(std::uint8_t** buffer, std::size_t* bytes,
                               std::size_t* most_records) {
    Collector& collector = instance();
    const std::lock_guard lock{collector.mutex_};
    *most_records = 0;  // as many as fit
    *bytes = buffer_bytes;
    if (collector.free_.empty()) {
      // Records want 8 bytes; without memory CUPTI counts them as dropped.
      *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(64, buffer_bytes));
      if (*buffer == nullptr) *bytes = 0;
      return;
    }
    *buffer = collector.free_.back();
    collector.free_.pop_back();
  }
  static void CUPTIAPI complete(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                                std::size_t, std::size_t valid_bytes) {
    if (buffer == nullptr) return;
    Collector& collector = instance();
    const std::lock_guard lock{collector.mutex_};
    CUpti_Activity* record = nullptr;
    while (valid_bytes > 0 &&
           collector.functions_.next_record(buffer, valid_bytes, &record) == CUPTI_SUCCESS)
      collector.add(*record);
    std::size_t num_dropped = 0;
    if (collector.functions_.num_dropped(context, stream, &num_dropped) == CUPTI_SUCCESS)
      collector.records_.num_dropped += num_dropped;
    collector.free_.push_back(buffer);
  }

  void add(const CUpti_Activity& record) {
    const auto* any = reinterpret_cast<const std::uint8_t*>(&record);
    switch (record.kind) {
      case CUPTI_ACTIVITY_KIND_KERNEL:
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel10*>(any);
        records_.work.push_back(
            {kernel.correlationId, demangled(kernel.name), kernel.start, kernel.end});
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy6*>(any);
        records_.work.push_back(
            {copy.correlationId, copy_name(copy.copyKind), copy.start, copy.end});
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMSET: {
        const auto& set = *reinterpret_cast<const CUpti_ActivityMemset4*>(any);
        records_.work.push_back({set.correlationId, "memset", set.start, set.end});
        break;
      }
      case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
        const auto& link = *reinterpret_cast<const CUpti_ActivityExternalCorrelation*>(any);
        if (link.externalKind == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0)
          records_.links.push_back({link.correlationId, link.externalId});
        break;
      }
      default:
        break;
    }
  }

  std::mutex switching_;  ///< before mutex_
  std::mutex mutex_;
  int num_users_{0};
  CuptiFunctions functions_{};
  CuptiRecords records_;
  std::vector<std::uint8_t*> free_;  ///< buffers, kept until the process ends
};

class Timer final : public CuptiTimer {
 public:
  Timer() : tag_{next_tag()} {}
  ~Timer() override { Collector::instance().switch_off(); }

  void before_op(const OpRecord& record) override {
    const std::uint64_t external = std::uint64_t{tag_} << 32U | record.seq;
    if (ops_.empty() || ops_.back().external != external) {
      const OpKind kind = record.lane == Lane::compute ? kind_of(record.op) : OpKind::communication;
      ops_.push_back({external, record.seq, record.lane, kind});
    }
    (void)functions().push(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, external);
  }
  void after_op(const OpRecord&) override {
    std::uint64_t last = 0;
    (void)functions().pop(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &last);
  }
  void collect(KernelSink& sink) override {
    const CuptiRecords records = Collector::instance().take(tag_);
    const std::vector<ClockReading> readings = read_clocks();
    report_.num_dropped += records.num_dropped;
    if (readings.empty()) {
      report_.num_impossible += records.work.size();
      ops_.clear();
      return;
    }
    const ClockRelation clocks = relate(readings);
    const JoinedWork joined = join(records, ops_, clocks.offset_ns);
    ops_.clear();
    report_.num_without_op += joined.num_without_op;
    report_.num_impossible += joined.num_impossible;
    report_.clock_bound_ns = std::max(report_.clock_bound_ns, clocks.bound_ns);
    for (const KernelRecord& kernel : joined.kernels) sink.on_kernel(kernel);
  }
  [[nodiscard]] const Report& report() const override { return report_; }

 private:
  static std::uint32_t next_tag() {
    static std::atomic<std::uint32_t> tag{0};
    return ++tag;
  }
  static const CuptiFunctions& functions() { return Collector::instance().functions(); }
  /// Those that succeeded.
  static std::vector<ClockReading> read_clocks() {
    constexpr int most = 9;
    std::vector<ClockReading> readings;
    for (int i = 0; i < most; ++i) {
      ClockReading reading;
      reading.before_ns = now_ns();
      const CUptiResult code = functions().timestamp(&reading.device_ns);
      reading.after_ns = now_ns();
      if (code == CUPTI_SUCCESS) readings.push_back(reading);
    }
    return readings;
  }

  std::uint32_t tag_;
  std::vector<TimedOp> ops_;
  Report report_;
};

/// Profilers that need CUPTI for themselves, by what they leave in the environment.
std::string profiler_around() {
  for (const char* variable : {"NSYS_PROFILING_SESSION_ID", "NV_NSIGHT_INJECTION_PORT_BASE",
                               "CUDA_INJECTION64_PATH", "NV_COMPUTE_PROFILER_PERFWORKS_DIR"})
    if (const char* value = std::getenv(variable); value != nullptr && *value != '\0')
      return variable;
  return {};
}

}  // namespace

const CuptiLibrary& load_cupti() {
  static const CuptiLibrary library = [] {
    CuptiLibrary loaded;
    void* handle = nullptr;
    // Never closed: it has threads of its own.
    for (const char* name :
         {"libcupti.so." SHARDMARK_CUPTI_MAJOR, "libcupti.so",
          "/usr/local/cuda/lib64/libcupti.so." SHARDMARK_CUPTI_MAJOR,
          "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so." SHARDMARK_CUPTI_MAJOR})
      if (handle == nullptr) handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      loaded.missing = "libcupti.so." SHARDMARK_CUPTI_MAJOR
                       " cannot be loaded (it comes with the CUDA toolkit; LD_LIBRARY_PATH)";
      return loaded;
    }
    Symbols symbols{handle};
    CuptiFunctions& f = loaded.functions;
    symbols.take(f.result_string, "cuptiGetResultString");
    symbols.take(f.timestamp, "cuptiGetTimestamp");
    symbols.take(f.register_callbacks, "cuptiActivityRegisterCallbacks");
    symbols.take(f.enable, "cuptiActivityEnable");
    symbols.take(f.disable, "cuptiActivityDisable");
    symbols.take(f.flush_all, "cuptiActivityFlushAll");
    symbols.take(f.next_record, "cuptiActivityGetNextRecord");
    symbols.take(f.num_dropped, "cuptiActivityGetNumDroppedRecords");
    symbols.take(f.push, "cuptiActivityPushExternalCorrelationId");
    symbols.take(f.pop, "cuptiActivityPopExternalCorrelationId");
    if (!symbols.missing().empty()) loaded.missing = message("libcupti has no ", symbols.missing());
    return loaded;
  }();
  return library;
}

CuptiStart start_cupti(const CuptiFunctions& functions) {
  if (const std::string variable = profiler_around(); !variable.empty())
    return {nullptr, message("another profiler is around (", variable, "), which needs CUPTI")};
  if (const std::string problem = Collector::instance().switch_on(functions); !problem.empty())
    return {nullptr, problem};
  return {std::make_unique<Timer>(), {}};
}

CuptiStart start_cupti() {
  const CuptiLibrary& library = load_cupti();
  if (!library.missing.empty()) return {nullptr, library.missing};
  return start_cupti(library.functions);
}

}  // namespace shardmark
