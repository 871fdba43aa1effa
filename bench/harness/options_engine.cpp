// Options that say what a rank computes on and how bytes go between ranks.

#include "bench/harness/options_engine.hpp"

#include "bench/harness/handlers.hpp"

namespace shardmark::bench {

void add_transport_options(CommandLine& line, EngineOptions& engine,
                           std::optional<TransportKind>& transport) {
  line.add("--transport",
           {"NAME",
            "threads of one process, or mpi; between GPUs nccl, staged (through host memory, any "
            "number of ranks on one GPU), or mpi-cuda (an MPI that takes device addresses)",
            "mpi under a launcher, otherwise threads; nccl between GPUs", "threads"},
           [&engine, &transport](std::string_view option, const std::string& text) {
             struct Choice {
               std::optional<TransportKind> transport;
               std::optional<cuda::Path> path;
             };
             const auto choice =
                 parse_choice<Choice>(option, text,
                                      {{"threads", {TransportKind::threads, {}}},
                                       {"mpi", {TransportKind::mpi, {}}},
                                       {"nccl", {{}, cuda::Path::nccl}},
                                       {"staged", {{}, cuda::Path::staged}},
                                       {"mpi-cuda", {TransportKind::mpi, cuda::Path::mpi_cuda}}});
             transport = choice.transport;
             engine.path = choice.path;
           });
}

void add_engine_options(CommandLine& line, EngineOptions& engine, bool& only_records) {
  line.group("Device");
  line.add(
      "--backend",
      {"NAME",
       "what computes: cpu, cuda (a GPU), or auto: cuda where every rank can use a GPU; record: as "
       "--dry-run",
       "auto", "cpu"},
      [&engine, &only_records](std::string_view option, const std::string& text) {
        struct Choice {
          BackendKind backend;
          bool records;
        };
        const auto choice = parse_choice<Choice>(option, text,
                                                 {{"auto", {BackendKind::automatic, false}},
                                                  {"cpu", {BackendKind::cpu, false}},
                                                  {"cuda", {BackendKind::cuda, false}},
                                                  {"record", {BackendKind::automatic, true}}});
        engine.backend = choice.backend;
        only_records = only_records || choice.records;
      });
  line.add("--device",
           {"N", "GPU of every rank, as its process counts them", "by the rank's place on its host",
            "0"},
           set_count(engine.device, 0));
  line.add("--allow-tf32", {"", "GPU: f32 matmuls round their operands to TF32", "", ""},
           set_flag(engine.allow_tf32));
  line.add("--stream-priority",
           {"NAME", "GPU: priority of the compute stream, normal or high (communication has high)",
            "normal", "high"},
           set_choice<bool>(engine.high_priority, {{"normal", false}, {"high", true}}));
}

void add_peak_option(CommandLine& line, EngineOptions& engine) {
  line.add("--peak",
           {"NAME",
            "what MFU is a share of: measured (the best matmul of this machine) or table (a GPU's "
            "data sheet)",
            "measured on a CPU, table on a GPU", "measured"},
           set_choice<PeakKind>(engine.peak,
                                {{"measured", PeakKind::measured}, {"table", PeakKind::table}}));
}

}  // namespace shardmark::bench
