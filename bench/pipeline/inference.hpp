#pragma once

#include "bench/harness/options.hpp"
#include "bench/harness/sink.hpp"
#include "core/transport.hpp"

#include <nlohmann/json_fwd.hpp>

#include <iosfwd>
#include <span>
#include <string>
#include <vector>

namespace shardmark::bench::pp {

/// What --mode infer shows: a line per row, at the end tp against pp.
class InferenceTable final : public ResultSink {
 public:
  InferenceTable(std::ostream& out, bool verbose) : out_{out}, verbose_{verbose} {}
  /// Who runs, what the numbers mean, and the column names.
  void begin(const bench::Options& options, const Transport& transport,
             const std::vector<std::string>& notices);
  void add(const Outcome& row) override;
  void finish(bool complete) override;

 private:
  void add_measured(const Result& result);

  std::ostream& out_;
  bool verbose_;
  std::vector<Result> results_;
};

/// All ranks as tp against all of them as pp, for one shape and step.
struct TpAgainstPp {
  struct Times {
    double latency_us{0};  ///< decode: time per token; prefill: time to first token
    double tokens_per_s{0};
  };
  struct Point {
    int requests{1};
    Times tp, pp;
  };
  std::string shape;
  InferenceStep step{InferenceStep::decode};
  int ranks{2};
  std::vector<Point> points;  ///< by requests
};
/// From rows that ran (or were predicted): of several splits into stages the fastest. Only numbers
/// of requests that both have.
[[nodiscard]] std::vector<TpAgainstPp> compare_tp_with_pp(std::span<const Result> results);
/// "tp 2 is 1.62x as fast per token at 1 request; pp 2 gives 1.21x the tokens/s from 4 requests on,
/// 1.31x at 16 (1, 4 and 16 were tried)"
[[nodiscard]] std::string conclusion(const TpAgainstPp& comparison);
[[nodiscard]] nlohmann::ordered_json to_json(std::span<const TpAgainstPp> comparisons);

}  // namespace shardmark::bench::pp
