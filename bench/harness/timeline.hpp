#pragma once

#include "bench/harness/sink.hpp"
#include "bench/harness/text_archive.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace shardmark::bench {

/// The profiled iteration of every row as a Chrome trace that follows Kineto's conventions: one
/// process per rank, one thread per lane, rows one after another. On each rank, `ProfilerStep#N`
/// spans row N's window, the ranges below it the scopes of the layer program; kernels carry
/// stream (lane), device (rank), correlation (position in the submission order), FLOPs and bytes.
/// Communication kernels are named as NCCL's are, so that tools which know those classify them.
class Timeline final : public ResultSink {
 public:
  /// Writes `folder`/trace.json.gz; when a resumed run has one already, trace-2.json.gz and so on.
  Timeline(const std::string& folder, std::string transport, int world_size);
  void add(const Outcome& row) override;
  void finish(bool complete) override;

 private:
  Timeline(const std::string& folder, int number, std::string transport, int world_size);
  /// Where the events of one rank's window go in time and count.
  struct Place {
    int rank;
    double begin_us;
    std::int64_t first_correlation;
    std::map<std::uint32_t, std::int64_t> collectives;  ///< number in its group, by op_seq
  };
  /// Of every collective of the trace: how many its group did before. The parts of one that a plan
  /// does share its number. Messages have none: not all members join them.
  std::map<std::uint32_t, std::int64_t> number_collectives(const RankTrace& trace);
  template <class Event>
  void write_event(const Event& event);
  void name_thread(int rank, std::size_t thread, const std::string& name);
  void add_window(const RankTrace& trace, const Place& place, const std::string& title);
  void add_scopes(const RankTrace& trace, const Place& place);
  void add_kernel(const RankTrace::Interval& interval, const Place& place);
  void add_submissions(const RankTrace& trace, const Place& place);

  std::string transport_;
  TextArchive archive_;
  bool is_first_{true};
  int num_rows_{0};
  double begin_us_{0};  ///< where the next row starts
  std::int64_t next_correlation_{1};
  std::int64_t first_number_;  ///< of collectives: no two files of a resumed run share one
  std::map<std::pair<int, std::string>, std::int64_t> num_collectives_;  ///< by rank and group
  std::set<std::pair<int, std::size_t>> named_;  ///< threads (rank, thread) that have their name
};

}  // namespace shardmark::bench
