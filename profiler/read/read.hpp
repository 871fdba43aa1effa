#pragma once

#include "profiler/timeline.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace shardmark {

/// Which reader takes a file, by its first bytes, never by its name.
enum class RecordingFormat { kineto, nsys, unknown };
[[nodiscard]] RecordingFormat format_of(const std::filesystem::path& file);

/// Reads one recording. A file that breaks off gives its whole events and Timeline::cut. Throws
/// InputError that names file, position and reason for one that is no recording at all.
[[nodiscard]] std::vector<Timeline> read_recording(const std::filesystem::path& file);

/// Chrome trace of PyTorch's profiler (Kineto) or of shardmark: object or bare array, plain or
/// gzip.
[[nodiscard]] std::vector<Timeline> read_kineto(const std::filesystem::path& file);
/// SQLite export of Nsight Systems, one timeline per device; tables may be missing.
[[nodiscard]] std::vector<Timeline> read_nsys(const std::filesystem::path& file);

/// The recordings that `inputs` mean, each once: files, globs, folders (those in it, or in the
/// folders in it if there are none; of a run of shardmark its traces in the order of the launches).
/// What one input means is sorted by rank where names tell it, else by the numbers in them. Throws
/// InputError for an input that means nothing.
[[nodiscard]] std::vector<std::filesystem::path> find_recordings(
    const std::vector<std::string>& inputs);

/// All of them, up to `num_threads` at a time, in order; `errors` gets a sentence for each file
/// that is no recording, and the rest goes on.
[[nodiscard]] std::vector<Timeline> read_all(const std::vector<std::filesystem::path>& files,
                                             int num_threads, std::vector<std::string>& errors);

}  // namespace shardmark
