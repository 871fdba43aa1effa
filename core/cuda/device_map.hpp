#pragma once

// Which rank gets which GPU, from what all ranks know of themselves. The choice is a pure function,
// so that launchers and machines that are not here can be tested.

#include "core/cuda/rank_gpu.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shardmark::cuda {

/// What a rank knows of its place.
struct RankPlace {
  std::string host;
  /// Equal for ranks of one machine and for no others, whatever the hosts call themselves.
  std::string machine;
  std::int64_t pid{0};
  /// Variables by which launchers tell a process its place on the machine, those that are set, in
  /// the order in which they count: launcher_variables.
  std::vector<std::pair<std::string, std::string>> launcher;
  std::string visible_devices;       ///< CUDA_VISIBLE_DEVICES; "(unset)"
  std::vector<std::string> devices;  ///< bus ids of the GPUs that the process sees
  int nccl_version{0};               ///< 0: none
  bool may_share{false};             ///< NCCL_MULTI_RANK_GPU_ENABLE=1
};
[[nodiscard]] std::span<const char* const> launcher_variables();
/// This rank's, without what needs CUDA or NCCL.
[[nodiscard]] RankPlace place_of_this_process();

struct DeviceChoice {
  int device{0};                     ///< among those that the rank's process sees
  std::vector<std::string> notices;  ///< where sources differ or a GPU is shared
};
/// The choice of each rank. A rank's place on its machine is the launcher's number, if that differs
/// between the machine's ranks, and otherwise its place among them in rank order; places beyond the
/// number of GPUs start over. `asked` (--device) overrides all that, unless it is -1. Throws
/// InputError where a device is not there, or where ranks would share one on a path that cannot.
[[nodiscard]] std::vector<DeviceChoice> choose_devices(std::span<const RankPlace> ranks, Path path,
                                                       int asked = -1);

/// Text for an exchange between ranks, and back.
[[nodiscard]] std::string to_text(const RankPlace& place);
[[nodiscard]] RankPlace place_from(const std::string& text);

/// Collective over the transport's world: what every rank knows, and the same choice on all.
[[nodiscard]] std::vector<DeviceChoice> agree_on_devices(Transport& transport,
                                                         const RankPlace& mine, Path path,
                                                         int asked);
/// Collective, too: every rank throws the same InputError if a rank lacks something, naming the
/// first such rank unless all lack the same. `missing` is empty on ranks that lack nothing.
void agree(Transport& transport, const std::string& missing);

}  // namespace shardmark::cuda
