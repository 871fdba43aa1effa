#pragma once

#include <filesystem>
#include <string>

namespace shardmark {

/// Rank and world size as file names tell them: "rank3", "rank_3", "rank-3of8", "worker3"; of the
/// folder if not of the file. -1 and 0 for what they do not tell.
struct NamedRank {
  int rank{-1};
  int world_size{0};
};
[[nodiscard]] NamedRank rank_of_name(const std::filesystem::path& file);

/// The first `num_bytes` of a file, inflated if they are gzip; shorter or empty if there is less.
[[nodiscard]] std::string head_of(const std::filesystem::path& file, std::size_t num_bytes);

}  // namespace shardmark
