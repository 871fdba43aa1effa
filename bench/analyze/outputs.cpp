#include "bench/analyze/outputs.hpp"

#include "bench/analyze/csv.hpp"
#include "bench/harness/csv.hpp"
#include "bench/harness/text_archive.hpp"
#include "core/error.hpp"

#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <system_error>

namespace shardmark::bench::analyze {
namespace {

namespace fs = std::filesystem;

/// A file that will be written.
struct Target {
  const char* option;
  fs::path path;
};

fs::path whole_path(const fs::path& path) {
  std::error_code none;
  const fs::path whole = fs::weakly_canonical(fs::absolute(path, none), none);
  return none ? path : whole;
}

std::vector<Target> files_of(const Options& options) {
  std::vector<Target> targets;
  if (!options.csv.empty()) targets.push_back({"--csv", options.csv});
  if (!options.json.empty()) targets.push_back({"--json", options.json});
  if (const std::string& path = options.merged_trace; !path.empty()) {
    const std::string suffix = TextArchive::suffix();
    targets.push_back({"--merged-trace", path.ends_with(suffix) ? path : path + suffix});
  }
  return targets;
}

std::string folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path().string() : std::string{"."};
}

void check_access(std::string_view option, const std::string& folder) {
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    throw InputError{message(option, ": cannot write to ", folder, ": ", std::strerror(errno))};
}

/// A file is written beside the path, and then takes its name.
void check_file(const Target& target) {
  std::error_code none;
  const std::string path = target.path.string(), folder = folder_of(target.path);
  if (fs::is_directory(target.path, none))
    throw InputError{message(target.option, ": ", path, " is a folder; give the name of a file")};
  if (fs::exists(target.path, none) && !fs::is_regular_file(target.path, none))
    throw InputError{message(target.option, ": ", path,
                             " is no file that could be replaced; give the name of a new one")};
  if (!fs::is_directory(folder, none))
    throw InputError{message(target.option, ": cannot write ", path, ": there is no folder ",
                             folder, "; make it first, or give another file")};
  check_access(target.option, folder);
}

/// --out makes the folders that are missing.
void check_folder_can_be_made(const std::string& out) {
  std::error_code none;
  fs::path there = whole_path(out);
  while (!fs::exists(there, none) && there.has_relative_path()) there = there.parent_path();
  if (!fs::is_directory(there, none))
    throw InputError{message("--out: cannot write to ", out, ": ", there.string(),
                             " is no folder; give another one")};
  check_access("--out", there.string());
}

void check_folder_is_ours(const Options& options, const std::vector<fs::path>& files) {
  std::error_code none;
  const fs::path out = whole_path(options.out);
  const auto is_read = [&](const fs::path& input) {
    return whole_path(fs::is_directory(input, none) ? input : fs::path{folder_of(input)}) == out;
  };
  if (std::ranges::any_of(options.inputs, is_read) || std::ranges::any_of(files, is_read))
    throw InputError{message("--out ", options.out,
                             " is the folder that is analysed; give another one, for example ",
                             options.out, "/analysis")};
  const std::string path = options.out + "/run.json";
  if (!fs::exists(path, none)) return;
  const auto before = nlohmann::ordered_json::parse(read_file(path), nullptr, false);
  std::string program = "another program";
  if (before.is_object() && before.contains("program") && before["program"].is_string())
    program = before["program"].get<std::string>();
  if (program != "shardmark-analyze")
    throw InputError{
        message("--out ", options.out, " holds a run of ", program, "; give another folder")};
}

}  // namespace

std::vector<std::string> files_of_folder() {
  std::vector<std::string> names{"run.json", "trace.json", "trace.json.gz"};
  for (const Table& table : tables_of({})) names.push_back(table.name + ".csv");
  return names;
}

void check_outputs(const Options& options, const std::vector<fs::path>& files) {
  std::map<fs::path, const char*> written;
  if (!options.out.empty()) {
    check_folder_is_ours(options, files);
    check_folder_can_be_made(options.out);
    for (const std::string& name : files_of_folder())
      written.emplace(whole_path(fs::path{options.out} / name), "--out");
  }
  std::set<fs::path> read;
  for (const fs::path& file : files) read.insert(whole_path(file));
  for (const Target& target : files_of(options)) {
    const fs::path path = whole_path(target.path);
    if (read.contains(path))
      throw InputError{message(target.option, ": ", target.path.string(),
                               " is one of the files that are analysed; give another name")};
    check_file(target);
    if (const auto [other, is_new] = written.emplace(path, target.option); !is_new)
      throw InputError{message(other->second, " and ", target.option, " both write ",
                               target.path.string(), "; give another name to one of them")};
  }
}

}  // namespace shardmark::bench::analyze
