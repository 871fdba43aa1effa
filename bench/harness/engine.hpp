#pragma once

// What a rank computes on: the CPU, or a GPU. Programs take their backends from here.

#include "bench/harness/result.hpp"
#include "core/cpu/gemm_probe.hpp"
#include "core/cuda/rank_gpu.hpp"
#include "core/measured_backend.hpp"
#include "core/record.hpp"
#include "core/transport.hpp"

#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace shardmark::bench {

/// --backend, as far as something is run.
enum class BackendKind : std::uint8_t { automatic, cpu, cuda };
/// --peak.
enum class PeakKind : std::uint8_t { automatic, measured, table };

/// What the command line says of it. Equal on all ranks.
struct EngineOptions {
  BackendKind backend{BackendKind::automatic};
  int threads_per_rank{1};
  std::optional<cuda::Path> path{};  ///< --transport nccl, staged or mpi-cuda; none: nccl
  int device{-1};                    ///< see RankGpuOptions, as the next two
  bool allow_tf32{false};
  bool high_priority{false};
  PeakKind peak{PeakKind::automatic};
};
/// Throws InputError when options are about a GPU, and --backend says cpu.
void check_engine_options(const EngineOptions& options);

class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  /// "cpu" or "cuda", and how bytes go from rank to rank: "threads", "mpi", "nccl", "staged" or
  /// "mpi-cuda".
  [[nodiscard]] virtual std::string_view backend_name() const = 0;
  [[nodiscard]] virtual std::string transport_name() const = 0;
  /// What the vendor calls it.
  [[nodiscard]] virtual std::string device_name() const = 0;
  /// Over the transport that the engine was opened with, or over one of a world of one rank. Both
  /// must outlive the backend.
  [[nodiscard]] virtual std::unique_ptr<MeasuredBackend> make_backend(Transport& transport) = 0;
  /// What one rank is compared with: always the CPU, so that kernels of a GPU are not compared with
  /// themselves. `alone` is a world of one rank.
  [[nodiscard]] virtual std::unique_ptr<MeasuredBackend> make_serial_backend(Transport& alone) = 0;
  /// Whether both backends run the same kernels.
  [[nodiscard]] virtual bool checks_itself() const { return true; }
  /// Prepares communication of `group` on `lane`, as Transport::connect.
  virtual void connect(const Group& group, Lane lane) = 0;
  /// Every (group, lane) that the recorded ops use, in one order on all ranks.
  void connect_all(const std::vector<OpRecord>& ops);

  /// Makes so much of the memory resident, where that takes time.
  virtual void prefault(std::int64_t bytes) = 0;
  virtual void reset_peak() = 0;
  [[nodiscard]] virtual std::int64_t peak_bytes() const = 0;
  /// Ranks with equal names share so many bytes of memory.
  struct Memory {
    std::string name;
    std::int64_t bytes{0};
  };
  [[nodiscard]] virtual Memory memory() const = 0;

  /// Measures the peak of matmuls between the samples; null where `known_peak` has one.
  [[nodiscard]] virtual GemmProbe* gemm_probe(DType dtype) = 0;
  /// A peak that does not change while a program runs; without a value if there is none, and then
  /// `source` says why. Nothing on a CPU.
  [[nodiscard]] virtual std::optional<Peak> known_peak(DType dtype) = 0;
  /// 1e12 FLOP/s of a large matmul, measured.
  [[nodiscard]] virtual double matmul_tflops(DType dtype) = 0;
  /// Relative error that its arithmetic may add to that of f32.
  [[nodiscard]] virtual double arithmetic_error() const { return 0; }

  /// Around a pass whose kernel times count.
  virtual void begin_profile() {}
  virtual void end_profile() {}
  /// Why the device is slower now than it could be; empty if it is not, or cannot say. Not while a
  /// clock runs.
  [[nodiscard]] virtual std::string throttled_by() { return {}; }

  /// Prints notices of backends to stderr, each once.
  void say(const std::set<std::string>& notices);
  /// Of this rank, for run.json; null on a CPU.
  [[nodiscard]] virtual nlohmann::ordered_json facts() const;

 private:
  std::set<std::string> said_;
};

/// The facts of every rank as the text of a JSON list; empty on CPUs. Collective.
[[nodiscard]] std::string gather_facts(const Engine& engine, Transport& transport);
/// The option that asks for a GPU, and not just for what is there: "--device 1"; empty if none
/// does.
[[nodiscard]] std::string option_of_gpus(const EngineOptions& options);

/// What --backend asks for; `automatic` is a GPU where every rank can use one, or where an option
/// is about GPUs. Collective over the world: every rank gets the same kind. Rank 0 of a build with
/// CUDA says on stderr why there is no GPU. Throws InputError naming the piece that is missing.
[[nodiscard]] std::unique_ptr<Engine> open_engine(const EngineOptions& options,
                                                  Transport& transport);

}  // namespace shardmark::bench
