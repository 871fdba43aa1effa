#include "bench/harness/engine.hpp"

#include "core/cpu/arena.hpp"
#include "core/cpu/backend.hpp"
#include "core/cpu/kernels.hpp"
#include "core/cuda/devices.hpp"
#include "core/error.hpp"
#include "core/host.hpp"
#include "layers/recording.hpp"
#include "profiler/cupti.hpp"
#include "profiler/nvml.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <iostream>
#include <map>

namespace shardmark::bench {
namespace {

class CpuEngine final : public Engine {
 public:
  CpuEngine(int num_threads, Transport& transport)
      : num_threads_{num_threads},
        transport_{transport},
        arena_{memory_total_bytes()},
        probe_arena_{std::int64_t{1} << 30U},
        kernels_{num_threads, arena_} {}

  [[nodiscard]] std::string_view backend_name() const override { return "cpu"; }
  [[nodiscard]] std::string transport_name() const override {
    return std::string{transport_.name()};
  }
  [[nodiscard]] std::string device_name() const override { return cpu_model(); }
  [[nodiscard]] std::unique_ptr<MeasuredBackend> make_backend(Transport& transport) override {
    return std::make_unique<CpuBackend>(transport, arena_, kernels_);
  }
  [[nodiscard]] std::unique_ptr<MeasuredBackend> make_serial_backend(Transport& alone) override {
    return make_backend(alone);
  }
  void connect(const Group& group, Lane lane) override { transport_.connect(group, lane); }
  void prefault(std::int64_t bytes) override { arena_.prefault(bytes); }
  void reset_peak() override { arena_.reset_peak(); }
  [[nodiscard]] std::int64_t peak_bytes() const override { return arena_.peak(); }
  [[nodiscard]] Memory memory() const override { return {host_name(), memory_total_bytes()}; }
  [[nodiscard]] GemmProbe* gemm_probe(DType dtype) override {
    auto& probe = probes_[dtype];
    if (!probe) probe = std::make_unique<GemmProbe>(dtype, num_threads_, probe_arena_);
    return probe.get();
  }
  [[nodiscard]] std::optional<Peak> known_peak(DType) override { return std::nullopt; }
  [[nodiscard]] double matmul_tflops(DType dtype) override {
    GemmProbe probe{dtype, num_threads_, probe_arena_};
    std::array<double, 2> rates{};
    for (double& rate : rates) rate = probe.run_tflops(GemmProbe::Layout::plain);
    return std::ranges::max(rates);
  }

 private:
  int num_threads_;
  Transport& transport_;
  Arena arena_;
  Arena probe_arena_;  ///< apart, so that a row's peak memory is its own
  Kernels kernels_;
  std::map<DType, std::unique_ptr<GemmProbe>> probes_;
};

std::string_view name_of(cuda::Path path) {
  static constexpr std::array<std::string_view, 3> names{"nccl", "staged", "mpi-cuda"};
  return names[static_cast<std::size_t>(path)];
}

class GpuEngine final : public Engine {
 public:
  GpuEngine(const EngineOptions& options, Transport& transport)
      : options_{options},
        transport_{transport},
        path_{options.path.value_or(cuda::Path::nccl)},
        gpu_{cuda::open_rank_gpu(transport, {.path = path_,
                                             .device = options.device,
                                             .allow_tf32 = options.allow_tf32,
                                             .high_priority = options.high_priority})} {
    if (transport.rank() == 0) say({gpu_->facts().notices.begin(), gpu_->facts().notices.end()});
    kernel_times_ = start_cupti().missing;
    if (transport.rank() == 0 && !kernel_times_.empty())
      std::cerr << "shardmark: kernel times are from events around each operation: "
                << kernel_times_ << std::endl;
  }

  [[nodiscard]] std::string_view backend_name() const override { return "cuda"; }
  [[nodiscard]] std::string transport_name() const override { return std::string{name_of(path_)}; }
  [[nodiscard]] std::string device_name() const override { return gpu_->facts().name; }
  [[nodiscard]] std::unique_ptr<MeasuredBackend> make_backend(Transport& transport) override {
    return gpu_->make_backend(transport);
  }
  [[nodiscard]] std::unique_ptr<MeasuredBackend> make_serial_backend(Transport& alone) override {
    if (!host_) host_ = std::make_unique<CpuEngine>(options_.threads_per_rank, transport_);
    return host_->make_backend(alone);
  }
  [[nodiscard]] bool checks_itself() const override { return false; }
  void connect(const Group& group, Lane lane) override { gpu_->connect(group, lane); }
  void prefault(std::int64_t) override {}
  void reset_peak() override { gpu_->reset_peak(); }
  [[nodiscard]] std::int64_t peak_bytes() const override { return gpu_->peak_bytes(); }
  [[nodiscard]] Memory memory() const override {
    const cuda::GpuFacts& facts = gpu_->facts();
    return {host_name() + ' ' + facts.bus_id, facts.memory_bytes};
  }
  [[nodiscard]] GemmProbe* gemm_probe(DType) override { return nullptr; }
  [[nodiscard]] std::optional<Peak> known_peak(DType dtype) override {
    if (options_.peak == PeakKind::measured) {
      const double tflops = matmul_tflops(dtype);
      return Peak{tflops, tflops, "measured_gemm"};
    }
    const cuda::Peak stated = cuda::peak_tflops(gpu_->facts().name, dtype, options_.allow_tf32);
    if (!stated.unknown.empty()) return Peak{0, 0, "unknown: " + stated.unknown};
    return Peak{stated.value, stated.value, stated.source};
  }
  [[nodiscard]] double matmul_tflops(DType dtype) override {
    double& rate = matmul_tflops_[dtype];
    if (rate == 0) rate = gpu_->measure_peak_tflops(dtype);
    return rate;
  }
  void begin_profile() override {
    CuptiStart start = start_cupti();
    if (start.timer == nullptr && kernel_times_.empty())
      say({"kernel times of this pass are from events around each operation: " + start.missing});
    timer_ = std::move(start.timer);
    gpu_->set_kernel_timer(timer_.get());
  }
  void end_profile() override {
    gpu_->set_kernel_timer(nullptr);
    if (timer_ == nullptr) return;
    const std::string warning = warning_of(timer_->report());
    timer_.reset();
    if (warning != warning_ && !warning.empty()) std::cerr << "shardmark: " << warning << std::endl;
    warning_ = warning;
  }
  [[nodiscard]] std::string throttled_by() override {
    std::string text;
    for (const std::string& reason : gpu_state(nvml(), gpu_->facts().bus_id).throttled_by)
      text += (text.empty() ? "" : ", ") + reason;
    return text;
  }
  /// TF32 keeps ten bits of a fraction.
  [[nodiscard]] double arithmetic_error() const override { return options_.allow_tf32 ? 2e-3 : 0; }
  [[nodiscard]] nlohmann::ordered_json facts() const override {
    const cuda::GpuFacts& facts = gpu_->facts();
    nlohmann::ordered_json json{{"name", facts.name},
                                {"index", facts.index},
                                {"bus_id", facts.bus_id},
                                {"compute_capability", facts.compute_capability},
                                {"num_sms", facts.num_sms},
                                {"memory_bytes", facts.memory_bytes},
                                {"allow_tf32", options_.allow_tf32},
                                {"high_priority", options_.high_priority}};
    for (const auto& [name, version] : facts.versions) json["versions"][name] = version;
    for (const auto& [name, value] : facts.settings) json["settings"][name] = value;
    json["notices"] = facts.notices;
    json["kernel_times"] = kernel_times_.empty() ? "cupti" : "events: " + kernel_times_;
    const GpuSurroundings around = gpu_surroundings(nvml(), facts.bus_id);
    const GpuState state = gpu_state(nvml(), facts.bus_id);
    if (!around.missing.empty()) {
      json["nvml"] = around.missing;
    } else {
      json["nvml"] = {
          {"driver", around.driver_version},    {"nvlinks", around.num_nvlinks},
          {"sm_clock_mhz", state.sm_clock_mhz}, {"memory_clock_mhz", state.memory_clock_mhz},
          {"power_w", state.power_w},           {"temperature_c", state.temperature_c},
          {"throttled_by", state.throttled_by}};
    }
    return json;
  }

 private:
  EngineOptions options_;
  Transport& transport_;
  cuda::Path path_;
  std::unique_ptr<cuda::RankGpu> gpu_;
  std::unique_ptr<CpuEngine> host_;  ///< made by the first check
  std::map<DType, double> matmul_tflops_;
  std::unique_ptr<CuptiTimer> timer_;
  std::string kernel_times_;  ///< why they are not by CUPTI
  std::string warning_;       ///< of the last profile
};

/// Why some rank has no GPU; the first one's reason, empty if all have one.
std::string why_not_all(Transport& transport) {
  for (const std::string& why : transport.gather(cuda::why_no_cuda()))
    if (!why.empty()) return why;
  return {};
}

#ifdef SHARDMARK_HAVE_CUDA
constexpr bool built_with_cuda = true;
#else
constexpr bool built_with_cuda = false;
#endif

}  // namespace

void Engine::connect_all(const std::vector<OpRecord>& ops) {
  for_each_channel(ops, [this](const Group& group, Lane lane) { connect(group, lane); });
}

void Engine::say(const std::set<std::string>& notices) {
  for (const std::string& notice : notices)
    if (said_.insert(notice).second) std::cerr << "shardmark: " << notice << std::endl;
}

nlohmann::ordered_json Engine::facts() const { return nullptr; }

std::string gather_facts(const Engine& engine, Transport& transport) {
  const nlohmann::ordered_json mine = engine.facts();
  if (mine.is_null()) return {};
  auto all = nlohmann::ordered_json::array();
  for (const std::string& facts : transport.gather(mine.dump()))
    all.push_back(nlohmann::ordered_json::parse(facts));
  return all.dump();
}

std::string option_of_gpus(const EngineOptions& options) {
  if (options.backend == BackendKind::cuda) return "--backend cuda";
  if (options.path) return message("--transport ", name_of(*options.path));
  if (options.device >= 0) return message("--device ", options.device);
  if (options.allow_tf32) return "--allow-tf32";
  return options.high_priority ? "--stream-priority high" : "";
}

void check_engine_options(const EngineOptions& options) {
  if (options.backend == BackendKind::cuda && options.threads_per_rank > 1)
    throw InputError{message("--threads-per-rank ", options.threads_per_rank,
                             " is about the CPU, and --backend cuda computes on a GPU; leave one "
                             "of them out")};
  if (options.backend != BackendKind::cpu) return;
  const auto refuse = [](const std::string& option, const std::string& what) {
    throw InputError{message(option, " is about ", what,
                             ", and --backend cpu uses none; leave one of them out")};
  };
  if (options.peak == PeakKind::table)
    refuse("--peak table", "figures of data sheets of GPUs (measured works on the CPU)");
  if (options.path)
    refuse(message("--transport ", name_of(*options.path)),
           "how bytes go between GPUs (threads and mpi work on the CPU)");
  if (options.device >= 0) refuse(message("--device ", options.device), "which GPU a rank uses");
  if (options.allow_tf32) refuse("--allow-tf32", "matmuls of GPUs");
  if (options.high_priority) refuse("--stream-priority high", "streams of GPUs");
}

std::unique_ptr<Engine> open_engine(const EngineOptions& options, Transport& transport) {
  const auto on_cpu = [&] {
    return std::make_unique<CpuEngine>(options.threads_per_rank, transport);
  };
  if (options.backend == BackendKind::cpu) return on_cpu();
  const std::string asked = option_of_gpus(options);
  if (asked.empty() && !built_with_cuda) return on_cpu();
  std::string why = why_not_all(transport);
  if (!asked.empty()) {
    if (!why.empty()) throw InputError{message(asked, ": ", why, "; --backend cpu works here")};
    return std::make_unique<GpuEngine>(options, transport);
  }
  if (why.empty()) try {
      return std::make_unique<GpuEngine>(options, transport);
    } catch (const InputError& error) {  // on all ranks or none
      why = error.what();
    }
  if (transport.rank() == 0)
    std::cerr << message("shardmark: ", why, "; running on the CPU\n") << std::flush;
  return on_cpu();
}

}  // namespace shardmark::bench
