#pragma once

#include "bench/harness/columns.hpp"
#include "bench/harness/options.hpp"
#include "bench/harness/sink.hpp"
#include "core/transport.hpp"

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace shardmark::bench {

/// What `options` measure otherwise than the run in their folder did: "seed 1, now 9; ...".
[[nodiscard]] std::string changed_settings(const Options& options);
/// The same for any program: `settings` against the "measurement" of `folder`/run.json.
[[nodiscard]] std::string changed_settings(const std::string& folder,
                                           const nlohmann::ordered_json& settings);

/// Where the numbers come from: command line, source, compiler, libraries, machine, ranks,
/// environment, and this process before it measured anything.
[[nodiscard]] nlohmann::ordered_json provenance(const std::vector<std::string>& command_line,
                                                const Options& options, const RunIdentity& run,
                                                const Transport& transport);

/// The same for any program: its name, the version of its results.csv, and how it measures.
[[nodiscard]] nlohmann::ordered_json provenance_of(const std::string& program, int version,
                                                   const std::vector<std::string>& command_line,
                                                   nlohmann::ordered_json measurement,
                                                   const RunIdentity& run,
                                                   const Transport& transport);

/// run.json as a file: written at once with `complete: false`, replaced as a whole each time.
class RunRecord {
 public:
  /// A resumed run keeps the earlier one's under "resumed_from".
  RunRecord(const std::string& folder, const nlohmann::ordered_json& provenance, bool resume);
  RunRecord(const RunRecord&) = delete;
  RunRecord& operator=(const RunRecord&) = delete;
  ~RunRecord();
  /// Adds the end: counts of rows, the summary, and whether all rows of the sweep are there.
  void finish(const nlohmann::ordered_json& rows, const nlohmann::ordered_json& summary,
              bool complete);

 private:
  void write() const;

  std::string path_;
  std::unique_ptr<nlohmann::ordered_json> content_;
};

/// The summary of a run of shardmark-tp.
[[nodiscard]] nlohmann::ordered_json summary_json(std::span<const Result> results);

/// run.json of a program that measures layers: provenance, and at the end the summary of the rows.
/// `complete: true` says that all rows of the sweep are in results.csv.
class RunJson final : public ResultSink {
 public:
  using Summarize = std::function<nlohmann::ordered_json(std::span<const Result>)>;
  RunJson(const std::string& folder, const nlohmann::ordered_json& provenance, bool resume,
          Summarize summarize)
      : record_{folder, provenance, resume}, summarize_{std::move(summarize)} {}
  void add(const Outcome& row) override;
  void finish(bool complete) override;

 private:
  RunRecord record_;
  Summarize summarize_;
  std::vector<Result> results_;
};

/// Names a run: UTC start time and process id.
[[nodiscard]] std::string make_run_id();

}  // namespace shardmark::bench
