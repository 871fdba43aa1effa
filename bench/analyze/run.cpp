#include "bench/analyze/run.hpp"

#include "bench/analyze/csv.hpp"
#include "bench/analyze/json.hpp"
#include "bench/analyze/merged_trace.hpp"
#include "bench/analyze/report.hpp"
#include "bench/analyze/summary.hpp"
#include "bench/harness/build_info.hpp"
#include "bench/harness/csv.hpp"
#include "core/error.hpp"
#include "core/host.hpp"
#include "profiler/read/read.hpp"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <ostream>

namespace shardmark::bench::analyze {
namespace {

namespace fs = std::filesystem;

/// All that can be read of the inputs; what cannot is said at once.
Recording load(const std::vector<std::string>& inputs, const Options& options,
               std::ostream& problems) {
  const std::vector<fs::path> files = find_recordings(inputs);
  const int num_threads = options.threads > 0 ? options.threads : cores_available();
  std::vector<std::string> errors;
  std::vector<Timeline> timelines = read_all(files, num_threads, errors);
  Recording recording =
      make_recording(std::move(timelines), options.rule, options.comm_patterns, std::move(errors));
  for (const std::string& error : recording.errors) problems << "shardmark: " << error << '\n';
  return recording;
}

/// A folder that holds something else must not be written to: results of another program would be
/// set aside, and a trace beside those that were read would be read as one of them next time.
void check_folder(const Options& options) {
  std::error_code problem;
  for (const std::string& input : options.inputs)
    if (fs::is_directory(input, problem) && fs::equivalent(input, options.out, problem))
      throw InputError{message("--out ", options.out,
                               " is the folder that is analysed; give another one, for example ",
                               options.out, "/analysis")};
  const std::string path = options.out + "/run.json";
  if (!fs::exists(path, problem)) return;
  const auto before = nlohmann::ordered_json::parse(read_file(path), nullptr, false);
  std::string program = "another program";
  if (before.is_object() && before.contains("program") && before["program"].is_string())
    program = before["program"].get<std::string>();
  if (program != "shardmark-analyze")
    throw InputError{
        message("--out ", options.out, " holds a run of ", program, "; give another folder")};
}

std::vector<std::int64_t> offsets_of(const Report& report) {
  return report.across ? report.across->clocks.offset_ns
                       : std::vector<std::int64_t>(report.ranks.size(), 0);
}

void write_folder(const Report& report, const Recording& recording,
                  const std::vector<std::string>& command_line) {
  const std::string& folder = report.options.out;
  const std::vector<Table> tables = tables_of(report);
  std::vector<std::string> names{"run.json", "trace.json", "trace.json.gz"};
  for (const Table& table : tables) names.push_back(table.name + ".csv");
  prepare_folder(folder, false, names);
  for (const Table& table : tables)
    write_whole(folder + '/' + table.name + ".csv", csv_text(table));
  write_merged_trace(recording, offsets_of(report), folder + "/trace.json", report.options.axis_of);
  nlohmann::ordered_json run = head_json(report);
  run["command_line"] = command_line;
  run["commit"] = build_info().git_commit;
  run["commit_dirty"] = build_info().git_dirty;
  write_whole(folder + "/run.json", to_text(run));
}

int compare(const Options& options, std::ostream& out, std::ostream& problems) {
  const Recording a = load({options.inputs[0]}, options, problems);
  const Recording b = load({options.inputs[1]}, options, problems);
  if (a.ranks.empty() || b.ranks.empty()) return 1;
  const RunDiff diff =
      diff_runs(a, choose_windows(a, options).spans(), b, choose_windows(b, options).spans());
  out << "# " << version_text() << "\n# A: " << options.inputs[0] << "\n# B: " << options.inputs[1]
      << '\n';
  print_diff(out, diff, static_cast<std::size_t>(options.top));
  if (!options.json.empty()) write_whole(options.json, diff_json_text(options, diff));
  return a.errors.empty() && b.errors.empty() ? 0 : 1;
}

}  // namespace

int run(const Options& options, const std::vector<std::string>& command_line, std::ostream& out,
        std::ostream& problems) {
  if (options.diff) return compare(options, out, problems);
  if (!options.out.empty()) check_folder(options);
  const Recording recording = load(options.inputs, options, problems);
  if (recording.ranks.empty()) return 1;
  const Report report = make_report(recording, options);
  print_summary(out, report);
  if (!options.csv.empty()) write_whole(options.csv, csv_text(tables_of(report).front()));
  if (!options.json.empty()) write_whole(options.json, json_text(report));
  if (!options.merged_trace.empty())
    write_merged_trace(recording, offsets_of(report), options.merged_trace, options.axis_of);
  if (!options.out.empty()) {
    write_folder(report, recording, command_line);
    out << "# wrote " << options.out << std::endl;
  }
  return recording.errors.empty() ? 0 : 1;
}

}  // namespace shardmark::bench::analyze
