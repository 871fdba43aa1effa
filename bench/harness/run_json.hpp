#pragma once

#include "bench/harness/columns.hpp"
#include "bench/harness/options.hpp"
#include "bench/harness/sink.hpp"
#include "core/transport.hpp"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace shardmark::bench {

/// Where the numbers come from: command line, source, compiler, libraries, machine, ranks,
/// environment, and this process before it measured anything.
[[nodiscard]] nlohmann::ordered_json provenance(const std::vector<std::string>& command_line,
                                                const Options& options, const RunIdentity& run,
                                                const Transport& transport);

/// run.json: provenance, and at the end the summary of the rows. Written at once with `complete:
/// false`; a `true` says that all rows of the sweep are in results.csv. Replaced as a whole each
/// time.
class RunJson final : public ResultSink {
 public:
  /// A resumed run keeps the earlier one's under "resumed_from".
  RunJson(const std::string& folder, const nlohmann::ordered_json& provenance, bool resume);
  ~RunJson() override;
  void add(const Outcome& row) override;
  void finish(bool complete) override;

 private:
  void write() const;

  std::string path_;
  std::unique_ptr<nlohmann::ordered_json> content_;
  std::vector<Result> results_;
};

/// Names a run: UTC start time and process id.
[[nodiscard]] std::string make_run_id();

}  // namespace shardmark::bench
