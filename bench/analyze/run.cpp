#include "bench/analyze/run.hpp"

#include "bench/analyze/csv.hpp"
#include "bench/analyze/json.hpp"
#include "bench/analyze/merged_trace.hpp"
#include "bench/analyze/outputs.hpp"
#include "bench/analyze/report.hpp"
#include "bench/analyze/summary.hpp"
#include "bench/analyze/unmatched.hpp"
#include "bench/harness/build_info.hpp"
#include "bench/harness/csv.hpp"
#include "core/host.hpp"
#include "profiler/read/read.hpp"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <ostream>

namespace shardmark::bench::analyze {
namespace {

namespace fs = std::filesystem;

/// All that can be read of the files; what cannot is said at once.
Recording load(const std::vector<fs::path>& files, const Options& options, std::ostream& problems) {
  const int num_threads = options.threads > 0 ? options.threads : cores_available();
  std::vector<std::string> errors;
  std::vector<Timeline> timelines = read_all(files, num_threads, errors);
  Recording recording =
      make_recording(std::move(timelines), options.rule, options.comm_patterns, std::move(errors));
  for (const std::string& error : recording.errors) problems << "shardmark: " << error << '\n';
  return recording;
}

std::vector<std::int64_t> offsets_of(const Report& report) {
  return report.across ? report.across->clocks.offset_ns
                       : std::vector<std::int64_t>(report.ranks.size(), 0);
}

void write_folder(const Report& report, const Recording& recording,
                  const std::vector<std::string>& command_line) {
  const std::string& folder = report.options.out;
  const std::vector<Table> tables = tables_of(report);
  prepare_folder(folder, false, files_of_folder());
  for (const Table& table : tables)
    write_whole(folder + '/' + table.name + ".csv", csv_text(table));
  write_merged_trace(recording, offsets_of(report), folder + "/trace.json", report.options.axis_of);
  nlohmann::ordered_json run = head_json(report);
  run["command_line"] = command_line;
  run["commit"] = build_info().git_commit;
  run["commit_dirty"] = build_info().git_dirty;
  write_whole(folder + "/run.json", to_text(run));
}

/// Of one of the two runs.
void add_warnings(RunDiff& diff, const char* run, const Recording& recording,
                  const ChosenWindows& windows, const Options& options) {
  for (const auto& sentences :
       {recording.warnings, windows.warnings, unmatched_options(recording, options)})
    for (const std::string& sentence : sentences) diff.warnings.push_back(run + sentence);
}

int compare(const Options& options, std::ostream& out, std::ostream& problems) {
  const std::vector<fs::path> a_files = find_recordings({options.inputs[0]});
  const std::vector<fs::path> b_files = find_recordings({options.inputs[1]});
  for (const auto& files : {a_files, b_files}) check_outputs(options, files);
  const Recording a = load(a_files, options, problems);
  const Recording b = load(b_files, options, problems);
  if (a.ranks.empty() || b.ranks.empty()) return 1;
  const ChosenWindows a_windows = choose_windows(a, options);
  const ChosenWindows b_windows = choose_windows(b, options);
  RunDiff diff = diff_runs(a, a_windows.spans(), b, b_windows.spans());
  add_warnings(diff, "A: ", a, a_windows, options);
  add_warnings(diff, "B: ", b, b_windows, options);
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
  const std::vector<fs::path> files = find_recordings(options.inputs);
  check_outputs(options, files);
  const Recording recording = load(files, options, problems);
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
