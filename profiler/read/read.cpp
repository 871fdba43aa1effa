#include "profiler/read/read.hpp"

#include "core/error.hpp"
#include "profiler/read/find.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <iterator>
#include <new>
#include <string_view>
#include <thread>

namespace shardmark {
namespace {

/// Why a file that exists is none of the formats.
std::string why_unknown(const std::filesystem::path& file) {
  if (std::filesystem::file_size(file) == 0) return "is empty";
  const std::string head = head_of(file, 64);
  if (head.empty()) return "is gzip from which nothing can be unpacked";
  if (head.starts_with("SQLite format 3")) return "is a compressed database: unpack it first";
  const std::string ending = file.extension().string();
  if (ending == ".nsys-rep" || ending == ".qdrep" || ending == ".qdstrm")
    return "is a report of Nsight Systems: export it with `nsys export --type sqlite`";
  return "is no recording: its first bytes are neither those of JSON (plain or gzip) nor of an "
         "SQLite database";
}

std::vector<Timeline> read_as(RecordingFormat format, const std::filesystem::path& file) {
  switch (format) {
    case RecordingFormat::kineto:
      return read_kineto(file);
    case RecordingFormat::nsys:
      return read_nsys(file);
    case RecordingFormat::unknown:
      break;
  }
  throw InputError{message(file.string(), ' ', why_unknown(file))};
}

/// One file's timelines, or why there are none.
struct FileResult {
  std::vector<Timeline> timelines;
  std::string error;
};

FileResult try_to_read(const std::filesystem::path& file) {
  try {
    return {read_recording(file), {}};
  } catch (const std::bad_alloc&) {
    return {{}, message(file.string(), " does not fit in memory")};
  } catch (const std::exception& error) {
    return {{}, error.what()};
  }
}

}  // namespace

std::vector<Timeline> read_recording(const std::filesystem::path& file) {
  // Its start is read first, to know the format.
  std::error_code none;
  if (!std::filesystem::is_regular_file(file, none))
    throw InputError{message(file.string(), " is no file, or one that can be read only once")};
  std::vector<Timeline> timelines = read_as(format_of(file), file);
  if (timelines.size() != 1) return timelines;
  const NamedRank named = rank_of_name(file);
  Timeline& timeline = timelines.front();
  if (timeline.rank < 0) timeline.rank = named.rank;
  if (timeline.world_size == 0) timeline.world_size = named.world_size;
  return timelines;
}

std::vector<Timeline> read_all(const std::vector<std::filesystem::path>& files, int num_threads,
                               std::vector<std::string>& errors) {
  std::vector<FileResult> results(files.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < files.size(); i = next++) results[i] = try_to_read(files[i]);
  };
  {
    std::vector<std::jthread> helpers;
    const auto wanted = std::min(static_cast<std::size_t>(std::max(num_threads, 1)), files.size());
    for (std::size_t i = 1; i < wanted; ++i) helpers.emplace_back(work);
    work();
  }
  std::vector<Timeline> timelines;
  for (FileResult& result : results) {
    if (!result.error.empty()) errors.push_back(std::move(result.error));
    std::ranges::move(result.timelines, std::back_inserter(timelines));
  }
  return timelines;
}

}  // namespace shardmark
