#include "profiler/read/find.hpp"

#include "core/error.hpp"
#include "profiler/read/block_source.hpp"
#include "profiler/read/read.hpp"

#include <glob.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>

namespace shardmark {
namespace {

namespace fs = std::filesystem;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The number at the start of `text`, which is shortened by it.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// The last "rank" or "worker" of a name that a number follows.
NamedRank rank_in(const std::string& name) {
  const std::string text = lower(name);
  NamedRank named;
  for (const std::string_view word : {"worker", "rank"})
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
      std::string_view rest = std::string_view{text}.substr(at + word.size());
      if (!rest.empty() && std::string_view{"_-=."}.find(rest.front()) != std::string_view::npos)
        rest.remove_prefix(1);
      const auto rank = take_number(rest);
      if (!rank) continue;
      named = {*rank, 0};
      if (rest.starts_with("_of_")) rest.remove_prefix(1);
      if (!rest.starts_with("of")) continue;
      rest.remove_prefix(rest.starts_with("of_") ? 3 : 2);
      const auto size = take_number(rest);
      if (size && *size > *rank) named.world_size = *size;
    }
  return named;
}

/// Text and numbers of a name in turn, so that rank10 comes after rank9. Endings are left out:
/// trace.json comes before trace-2.json.
std::vector<std::pair<std::string, std::uint64_t>> parts_of(const fs::path& path) {
  std::string name = path.string();
  for (const std::string_view ending : {".gz", ".json", ".trace", ".pt", ".sqlite"})
    if (name.ends_with(ending)) name.resize(name.size() - ending.size());
  std::vector<std::pair<std::string, std::uint64_t>> parts;
  for (std::size_t at = 0; at < name.size();) {
    std::size_t end = at;
    while (end < name.size() && !is_digit(name[end])) ++end;
    std::uint64_t number = 0;
    const auto [rest, error] =
        std::from_chars(name.data() + end, name.data() + name.size(), number);
    parts.emplace_back(name.substr(at, end - at), number);
    at = std::max(end, static_cast<std::size_t>(rest - name.data()));
  }
  return parts;
}

void sort_by_rank(std::vector<fs::path>& files) {
  std::ranges::stable_sort(files, {}, [](const fs::path& file) {
    const int rank = rank_of_name(file).rank;
    return std::tuple{rank < 0, rank, parts_of(file)};
  });
}

/// Of a folder's files only those that say at their start that they are a trace: a folder may hold
/// other JSON, too, and what our programs have begun (.part) or replaced (.old).
bool looks_like_recording(const fs::path& file) {
  if (file.extension() == ".part" || file.extension() == ".old") return false;
  switch (format_of(file)) {
    case RecordingFormat::nsys:
      return true;
    case RecordingFormat::unknown:
      return false;
    case RecordingFormat::kineto:
      break;
  }
  constexpr std::size_t head_bytes = 64 << 10;
  const std::string head = head_of(file, head_bytes);
  return std::ranges::any_of(
      std::initializer_list<std::string_view>{"\"traceEvents\"", "\"ph\"", "\"schemaVersion\"",
                                              "\"deviceProperties\"", "\"displayTimeUnit\""},
      [&](std::string_view key) { return head.find(key) != std::string::npos; });
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at{folder, error}, end; !error && at != end; at.increment(error))
    entries.push_back(at->path());
  if (error) throw InputError{message("cannot read ", folder.string(), ": ", error.message())};
  return entries;
}

/// A run folder of ours: trace.json.gz of its first launch, trace-2.json.gz of one that resumed it.
std::vector<fs::path> traces_of_run(const fs::path& folder) {
  std::vector<fs::path> traces;
  for (int n = 1;; ++n) {
    const std::string name = n == 1 ? "trace.json" : message("trace-", n, ".json");
    const std::size_t before = traces.size();
    for (const char* suffix : {".gz", ""})
      if (fs::is_regular_file(folder / (name + suffix)) && traces.size() == before)
        traces.push_back(folder / (name + suffix));
    if (traces.size() == before) return traces;
  }
}

std::vector<fs::path> recordings_in(const fs::path& folder) {
  if (fs::is_regular_file(folder / "run.json")) {
    std::vector<fs::path> traces = traces_of_run(folder);
    if (!traces.empty()) return traces;
  }
  std::vector<fs::path> files;
  for (const fs::path& entry : entries_of(folder))
    if (fs::is_regular_file(entry) && looks_like_recording(entry)) files.push_back(entry);
  sort_by_rank(files);
  return files;
}

/// Recordings in the folder itself, else those in its folders, of which each rank may have one.
std::vector<fs::path> expand_folder(const fs::path& folder) {
  std::vector<fs::path> files = recordings_in(folder);
  if (!files.empty()) return files;
  for (const fs::path& entry : entries_of(folder))
    if (fs::is_directory(entry))
      for (fs::path& file : recordings_in(entry)) files.push_back(std::move(file));
  sort_by_rank(files);
  if (files.empty())
    throw InputError{message(
        "folder ", folder.string(),
        " holds no recording: neither traces of PyTorch's profiler (.json, .json.gz), nor exports "
        "of Nsight Systems (.sqlite), nor a run of shardmark that was profiled")};
  return files;
}

std::vector<fs::path> expand_glob(const std::string& pattern) {
  glob_t matches{};
  std::vector<fs::path> paths;
  if (glob(pattern.c_str(), GLOB_TILDE | GLOB_BRACE, nullptr, &matches) == 0)
    paths.assign(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  globfree(&matches);
  if (paths.empty())
    throw InputError{message("there is no file or folder ", pattern,
                             pattern.find_first_of("*?[{") == std::string::npos
                                 ? ""
                                 : ", and nothing matches it as a pattern")};
  std::vector<fs::path> files;
  for (const fs::path& path : paths) {
    if (!fs::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (fs::path& file : expand_folder(path)) files.push_back(std::move(file));
  }
  sort_by_rank(files);
  return files;
}

std::vector<fs::path> expand(const std::string& input) {
  const fs::path path{input};
  if (fs::is_directory(path)) return expand_folder(path);
  if (fs::exists(path)) return {path};
  return expand_glob(input);
}

}  // namespace

NamedRank rank_of_name(const fs::path& file) {
  const NamedRank named = rank_in(file.filename().string());
  return named.rank >= 0 ? named : rank_in(file.parent_path().filename().string());
}

std::string head_of(const fs::path& file, std::size_t num_bytes) {
  BlockSource source{file};
  std::string head(num_bytes, '\0');
  head.resize(source.read(head.data(), num_bytes));
  return head;
}

RecordingFormat format_of(const fs::path& file) {
  constexpr std::string_view sqlite{"SQLite format 3"}, byte_order_mark{"\xef\xbb\xbf"};
  const std::string head = head_of(file, 4096);
  std::string_view text{head};
  // Compressed databases have to be unpacked first.
  if (text.starts_with(sqlite))
    return std::ifstream{file, std::ios::binary}.get() == sqlite.front() ? RecordingFormat::nsys
                                                                         : RecordingFormat::unknown;
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  return text.starts_with('{') || text.starts_with('[') ? RecordingFormat::kineto
                                                        : RecordingFormat::unknown;
}

std::vector<fs::path> find_recordings(const std::vector<std::string>& inputs) {
  std::vector<fs::path> files;
  std::set<fs::path> known;  // a file that two inputs mean is read once
  for (const std::string& input : inputs) try {
      for (fs::path& file : expand(input))
        if (known.insert(fs::weakly_canonical(file)).second) files.push_back(std::move(file));
    } catch (const fs::filesystem_error& error) {
      throw InputError{message("cannot read ", input, ": ", error.code().message())};
    }
  if (files.empty())
    throw InputError{"no input: name files, folders or patterns such as traces/*.json.gz"};
  return files;
}

}  // namespace shardmark
