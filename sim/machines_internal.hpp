#pragma once

#include <span>
#include <string_view>

namespace shardmark {

/// A file of sim/machines, built into the library so that programs find it wherever they run.
struct MachineText {
  std::string_view name, text;
};
[[nodiscard]] std::span<const MachineText> machine_texts();

}  // namespace shardmark
