#pragma once

#include "core/record.hpp"
#include "core/record/memory.hpp"
#include "core/transport.hpp"
#include "layers/program.hpp"

#include <functional>

namespace shardmark {

/// What one timed iteration runs: forward, backward of a forward done before, or both (no
/// optimizer).
enum class Phase : std::uint8_t { forward, backward, step };
[[nodiscard]] std::string_view name_of(Phase phase);
/// Submits one iteration.
void run_phase(LayerProgram& program, Phase phase);

/// The op list of one iteration of one rank, from the record backend: nothing is computed.
struct Recording {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Rank> rank;             ///< owns the paths that the records point to
  std::unique_ptr<LayerProgram> program;  ///< and this the lists of counts and starts
  std::vector<OpRecord> ops;              ///< of one `phase`
  std::vector<MemoryRecord> memory;  ///< from before the program was built to after the iteration
  std::int64_t tensor_bytes{0};      ///< peak of all tensors
  std::int64_t workspace_bytes{0};   ///< largest scratch any op takes on the cpu backend
  double flops{0};                   ///< executed by the compute ops (Work::flops)
  double bytes_wire{0};              ///< across this rank's link, see bytes_sent_of
};
/// `config.parallel` says which rank it is (Parallel::at).
[[nodiscard]] Recording record_program(const LayerConfig& config, Phase phase, int num_threads);

/// Every (group, lane) that the recorded ops use, in one order on all ranks: stages of a pipeline
/// use their groups in different ones.
void for_each_channel(const std::vector<OpRecord>& ops,
                      const std::function<void(const Group&, Lane)>& visit);
/// Connects them.
void connect_all(Transport& transport, const std::vector<OpRecord>& ops);

}  // namespace shardmark
