#pragma once

#include "bench/analyze/recording.hpp"
#include "bench/analyze/spans.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardmark::bench {

/// Parallelism that a group serves: "tp", "pp", "dp", "cp", "ep" or "?".
/// By `axis_of` (names of groups, of the command line) first, then the words of the group's
/// description and name, then the distance of its ranks, which tells little:
///   neighbours (0, 1, 2, 3)   tp, the innermost axis wherever there is one; with tp 1 it may be
///   any even steps (0, 4, 8)      dp if it reduces or gathers, pp if it sends and receives all of
///   the world, uneven  "?": any axis alone looks like this
/// `kind`: what the group is used for (kind_of_call), if that is known.
[[nodiscard]] std::string purpose_of(const ProcessGroup& group, int world_size,
                                     const std::map<std::string, std::string>& axis_of,
                                     std::string_view kind = {});

/// How a group is called in tables: its name, else its description, else its ranks.
[[nodiscard]] std::string label_of(const ProcessGroup& group);

/// Number of members; 0 if the file says neither size nor ranks.
[[nodiscard]] int size_of(const ProcessGroup& group);

/// A send, a receive or both.
[[nodiscard]] bool is_message(std::string_view kind);
/// No member can leave before the last has come: reductions and exchanges, not broadcasts.
[[nodiscard]] bool joins_all(std::string_view kind);

/// Bytes of one element of PyTorch's type, in its own words ("BFloat16", "Float8_e4m3fn") or C++'s
/// ("c10::BFloat16", "unsigned char"); 0 if not known.
[[nodiscard]] int bytes_of_dtype(std::string_view dtype);
/// S of the bus bandwidth: the larger of the two buffers, as nccl-tests has it, so the total for
/// all_gather, reduce_scatter, all_to_all, gather and scatter. `kind` of the call, as in
/// Communication. -1 if the file does not say.
[[nodiscard]] std::int64_t bytes_of_call(const CommunicationCall& call, std::string_view kind,
                                         int group_size);

struct Bandwidth {
  double algbw_GBps{0}, busbw_GBps{0};  ///< GB = 1e9; 0 if not known; busbw of one rank is 0
};
/// The factor assumes that no switch reduces. Source: nccl-tests, doc/PERFORMANCE.md.
[[nodiscard]] Bandwidth bandwidth_of(std::string_view kind, int group_size, std::int64_t bytes,
                                     double duration_us);

/// One communication of a rank, with what the file says of it.
struct Communication {
  Span time;
  /// Of metadata, else of the kernel's name, else "?": as kind_of_call, and all_to_all_v.
  std::string kind;
  std::uint32_t event{0};         ///< in Timeline::events
  std::uint32_t group{no_index};  ///< in Timeline::groups
  std::int64_t bytes{-1};         ///< bytes_of_call
  std::int64_t sequence{-1};      ///< as in CommunicationCall
  int peer{-1};                   ///< as in CommunicationCall
  std::string_view dtype{};       ///< of the Timeline; empty if the file does not say
};
/// All of a rank, by start; without those that end before they start. What one of our plans does in
/// parts is one, from the first start to the last end. (Other recorders may repeat a number: a CUDA
/// graph that is replayed does.)
[[nodiscard]] std::vector<Communication> communications_of(const RankRecording& rank);

/// When a rank was busy with one class of work: united spans.
[[nodiscard]] std::vector<Span> busy_spans(const RankRecording& rank, WorkClass work);

/// What is looked at of each rank, as Recording::ranks.
using RankSpans = std::vector<ChosenSpans>;
/// `window` on the clock of every rank.
[[nodiscard]] RankSpans spans_on(const Recording& recording, const Window& window);

/// All calls of one collective with one group, type and size on one rank that lie in the spans,
/// also in part.
struct CollectiveRow {
  int rank{0};
  std::string kind;                   ///< all_reduce, all_gather, ..., send_recv, or "?"
  std::string group, purpose, dtype;  ///< empty if the file does not say
  int group_size{0};                  ///< 0 if the file does not say
  std::int64_t bytes{-1};             ///< S of the bus bandwidth; -1 if the file does not say
  std::int64_t count{0};
  double total_us{0};    ///< of all calls, what lies in the spans
  double exposed_us{0};  ///< of their union, what lies in the spans and not under compute
  double p50_us{0}, p95_us{0}, min_us{0}, max_us{0};  ///< of whole calls
  double algbw_GBps{0}, busbw_GBps{0};  ///< at the median of this rank; 0 if not known
  std::string kernel;                   ///< name of the first
};
/// By rank, then the longest total first.
[[nodiscard]] std::vector<CollectiveRow> collective_rows(
    const Recording& recording, const RankSpans& spans,
    const std::map<std::string, std::string>& axis_of);
[[nodiscard]] std::vector<CollectiveRow> collective_rows(
    const Recording& recording, const Window& window,
    const std::map<std::string, std::string>& axis_of);

}  // namespace shardmark::bench
