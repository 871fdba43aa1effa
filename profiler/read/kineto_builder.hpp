#pragma once

#include "profiler/read/kineto_calls.hpp"
#include "profiler/read/kineto_event.hpp"
#include "profiler/timeline.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace shardmark {

/// Makes timelines of the events of a Chrome trace as they come. Keeps device events, the calls
/// that launched them and the annotations, and of all other events nothing.
class KinetoBuilder {
 public:
  /// `position`: of the event's text in the file's, for messages.
  void add_event(std::string_view text, std::int64_t position);
  /// distributedInfo or deviceProperties.
  void add_member(std::string_view key, std::string_view value);

  /// One timeline, or one per rank if the trace is shardmark's own. To be called once. File, format
  /// of others and what depends on the file's name are left to the caller.
  [[nodiscard]] std::vector<Timeline> finish();
  [[nodiscard]] std::int64_t num_events() const { return timeline_.num_events_read; }

 private:
  struct Launch {
    std::uint64_t correlation;
    std::int64_t start_ns;
    std::uint32_t thread;
    std::uint32_t event{no_index};  ///< the first that it launched, in timeline_.events
  };
  static constexpr std::uint64_t no_id = std::numeric_limits<std::uint64_t>::max();
  /// What of a device event only serves to find its launch, call and rank.
  struct Ids {
    std::uint64_t correlation, external;
    std::int32_t process;
  };
  struct HostEvent {
    HostRange range;
    std::int32_t process;
  };
  struct LaunchedDuring {
    const KinetoCalls::HostCall* call;
    std::size_t event;  ///< in timeline_.events
  };
  struct TextHash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  using Numbers = std::unordered_map<std::string, std::uint32_t, TextHash, std::equal_to<>>;

  void add_interesting(const KinetoEvent& event, const Span& time);
  void add_device_event(const KinetoEvent& event, const Span& time);
  void add_annotation(const KinetoEvent& event, const Span& time);
  void add_launch(const KinetoEvent& event, std::int64_t start_ns);
  bool read_time(const KinetoEvent& event, Span& time);
  KinetoArgs read_args(const KinetoEvent& event);
  std::uint32_t name_of(std::string_view raw);
  static std::uint32_t number_of(Numbers& numbers, std::string_view first, std::string_view second);
  std::uint32_t thread_of(const KinetoEvent& event);
  std::int32_t stream_of(std::string_view stream, std::string_view thread);
  void find_launches_and_calls();
  void assign_calls(const std::vector<LaunchedDuring>& launched);
  void keep_last_of_each_step();
  [[nodiscard]] std::vector<std::int32_t> own_ranks() const;
  [[nodiscard]] std::vector<Timeline> split(const std::vector<std::int32_t>& ranks) const;
  [[nodiscard]] std::string device_name_of(const Timeline& timeline) const;
  void add_warnings(Timeline& timeline) const;

  Timeline timeline_;     ///< of the whole file; its steps and ranges are in the lists below
  std::vector<Ids> ids_;  ///< of timeline_.events, in order
  std::vector<HostEvent> steps_, ranges_;
  std::vector<Launch> launches_;
  std::vector<std::pair<std::int64_t, std::string>> device_names_;  ///< by id
  std::vector<std::int32_t> row_processes_;  ///< with titles of rows, as shardmark writes them
  KinetoCalls calls_;
  Numbers number_of_name_, number_of_thread_, number_of_context_, number_of_stream_;
  std::int64_t num_broken_{0};  ///< events that could not be read
  std::string first_broken_;    ///< where the first of them is, and why
  std::int64_t num_broken_args_{0}, num_repaired_names_{0}, num_below_ns_{0}, num_same_step_{0};
};

}  // namespace shardmark
