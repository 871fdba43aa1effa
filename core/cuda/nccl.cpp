#include "core/cuda/nccl.hpp"

#include "core/error.hpp"

#include <unistd.h>

#include <algorithm>
#include <string_view>

namespace shardmark::cuda {

std::string nccl_version_text(int version) {
  // As NCCL_VERSION has it: 2.8 and before had a digit less.
  const int scale = version < 10000 ? 1000 : 10000;
  return message(version / scale, '.', version % scale / 100, '.', version % 100);
}

std::vector<std::pair<std::string, std::string>> nccl_settings() {
  std::vector<std::pair<std::string, std::string>> settings;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text{*variable};
    const std::size_t equals = text.find('=');
    if (text.starts_with("NCCL_") && equals != std::string_view::npos)
      settings.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  std::ranges::sort(settings);
  return settings;
}

}  // namespace shardmark::cuda
