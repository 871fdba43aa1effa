#pragma once

#include "profiler/read/block_source.hpp"
#include "profiler/read/json_scan.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardmark {

/// Cuts a Chrome trace ({"traceEvents": [...], ...} or a bare array) into its events and the other
/// members of its object, with memory for the largest of them and not for the file. It checks what
/// is between them; what is within is the caller's.
///
/// An event with a quote too many would swallow those behind it, to the end of the file at worst.
/// So one that looks like it (a line break in a string, more than 64 KiB, no end or that of an
/// array) is cut where `, {"ph"` begins another.
class EventSplitter {
 public:
  enum class Item { event, member, end };

  /// `members`: keys of the members that next() gives; the others are passed over.
  EventSplitter(BlockSource& source, std::vector<std::string> members);

  /// What comes next; the views below are valid until the next call.
  [[nodiscard]] Item next();
  [[nodiscard]] std::string_view key() const { return key_; }  ///< of a member, without quotes
  [[nodiscard]] std::string_view text() const { return text_; }
  /// Of the item's text: bytes of (inflated) text before it.
  [[nodiscard]] std::int64_t position() const { return position_; }

  /// The events have begun, or there are none to come.
  [[nodiscard]] bool has_events() const { return has_events_; }
  /// After the end: empty, or why the trace stops before its own: "truncated at byte 99, ...".
  [[nodiscard]] const std::string& fault() const { return fault_; }
  /// After the end: bytes of text before what follows the trace, or -1.
  [[nodiscard]] std::int64_t rest_position() const { return rest_position_; }

 private:
  enum class Place { start, members, events, behind, ended };
  enum class Kept { yes, no };

  bool fill(Kept kept);
  bool skip_space();
  bool skip_separator(char closing, const char* where);
  bool take_bracketed(Kept kept, const char* where);
  bool take_scalar(Kept kept, const char* where);
  bool take_text(std::size_t size);
  bool cut_at_next_event(std::size_t size);
  void begin();
  bool next_member();
  bool next_event();
  void look_behind();
  bool fail(const std::string& reason);
  bool fail_expected(const std::string& what);
  bool fail_truncated(const char* where);
  [[nodiscard]] char current() const { return buffer_[begin_]; }
  [[nodiscard]] std::int64_t offset() const {
    return discarded_ + static_cast<std::int64_t>(begin_);
  }

  BlockSource& source_;
  std::vector<std::string> members_;
  std::vector<char> buffer_;
  std::size_t begin_{0}, end_{0};  ///< what of buffer_ is not yet taken
  std::int64_t discarded_{0};      ///< bytes of text before buffer_
  Place place_{Place::start};
  bool is_bare_{false};  ///< an array without an object around it
  bool is_first_{true};  ///< of the current list
  bool has_events_{false};
  std::string key_;
  std::string_view text_;
  std::int64_t position_{0}, rest_position_{-1};
  int num_cut_{0};
  std::string fault_;
};

}  // namespace shardmark
