#pragma once

#include "bench/analyze/options.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace shardmark::bench::analyze {

/// Names of all that --out writes in its folder.
[[nodiscard]] std::vector<std::string> files_of_folder();

/// Throws InputError if an output cannot be written, or would replace one of `files`, which are
/// read, or another output: before anything is analysed. A folder of --out must not hold the files,
/// nor a run of another program: its results would be set aside, and a trace beside those that were
/// read would be read as one of them next time.
void check_outputs(const Options& options, const std::vector<std::filesystem::path>& files);

}  // namespace shardmark::bench::analyze
