#include "profiler/read/event_splitter.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace shardmark {
namespace {

constexpr std::size_t first_buffer_size = 256 * 1024;
constexpr std::size_t suspicious_size = 64 * 1024;      ///< of an event
constexpr std::size_t largest_size = 16 * 1024 * 1024;  ///< of an event or other item
/// Searching each of more than this many broken events for the next one could take forever.
constexpr int most_cut = 10'000;

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/// Place of the last character in text[0, end) that is no space, or npos.
std::size_t last_before(std::string_view text, std::size_t end) {
  while (end > 0 && is_space(text[end - 1])) --end;
  return end == 0 ? std::string_view::npos : end - 1;
}

/// Place of the comma in `, {"ph"`, or npos.
std::size_t find_next_event(std::string_view text) {
  constexpr std::string_view first_key = "\"ph\"";
  for (std::size_t at = text.find(first_key); at != std::string_view::npos;
       at = text.find(first_key, at + 1)) {
    const std::size_t brace = last_before(text, at);
    if (brace == std::string_view::npos || text[brace] != '{') continue;
    const std::size_t comma = last_before(text, brace);
    if (comma != std::string_view::npos && text[comma] == ',') return comma;
  }
  return std::string_view::npos;
}

}  // namespace

EventSplitter::EventSplitter(BlockSource& source, std::vector<std::string> members)
    : source_{source}, members_{std::move(members)}, buffer_(first_buffer_size) {}

EventSplitter::Item EventSplitter::next() {
  while (place_ != Place::ended) {
    switch (place_) {
      case Place::start:
        begin();
        break;
      case Place::members:
        if (next_member()) return Item::member;
        break;
      case Place::events:
        if (next_event()) return Item::event;
        break;
      case Place::behind:
        look_behind();
        break;
      case Place::ended:
        break;
    }
  }
  return Item::end;
}

/// Reads on; what is kept moves to the front of the buffer. False at the end of the text.
bool EventSplitter::fill(Kept kept) {
  if (kept == Kept::no) begin_ = end_;
  discarded_ += static_cast<std::int64_t>(begin_);
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= std::exchange(begin_, 0);
  if (end_ == buffer_.size()) buffer_.resize(2 * buffer_.size());
  const std::size_t num_read = source_.read(buffer_.data() + end_, buffer_.size() - end_);
  end_ += num_read;
  return num_read > 0;
}

bool EventSplitter::skip_space() {
  for (;;) {
    while (begin_ < end_ && is_space(current())) ++begin_;
    if (begin_ < end_) return true;
    if (!fill(Kept::no)) return false;
  }
}

/// To the next item of a list, or onto the bracket that closes it.
bool EventSplitter::skip_separator(char closing, const char* where) {
  if (!skip_space()) return fail_truncated(where);
  if (std::exchange(is_first_, false) || current() == closing) return true;
  if (current() != ',') return fail_expected(message("',' or '", closing, "'"));
  ++begin_;
  return skip_space() || fail_truncated(where);
}

bool EventSplitter::take_text(std::size_t size) {
  position_ = offset();
  text_ = std::string_view{buffer_.data() + begin_, size};
  begin_ += size;
  return true;
}

/// An object or array, of which a part is enough if it is not kept.
bool EventSplitter::take_bracketed(Kept kept, const char* where) {
  const bool is_event = place_ == Place::events;
  ValueScanner scanner;
  std::size_t scanned = 0, next_stop = suspicious_size;  // from begin_
  for (;;) {
    const std::size_t stop = std::min(end_ - begin_, next_stop);
    const char* text = buffer_.data() + begin_;
    const char* end = scanner.scan(text + scanned, text + stop);
    const auto size = end == nullptr ? stop : static_cast<std::size_t>(end - text);
    const bool is_suspicious =
        end == nullptr ? stop == next_stop : scanner.has_raw_control() || end[-1] != '}';
    if (is_event && is_suspicious && cut_at_next_event(size)) return true;
    if (end != nullptr) return take_text(size);
    scanned = stop;
    if (stop == next_stop) {
      next_stop *= 2;
    } else {
      if (kept == Kept::yes && scanned > largest_size)
        return fail(message("more than ", largest_size, " bytes ", where));
      if (!fill(kept)) return (is_event && cut_at_next_event(scanned)) || fail_truncated(where);
      if (kept == Kept::no) scanned = 0;
    }
  }
}

/// A string, number or word.
bool EventSplitter::take_scalar(Kept kept, const char* where) {
  const bool is_string = current() == '"';
  bool is_escaped = false;
  for (std::size_t size = is_string ? 1 : 0;; ++size) {
    if (begin_ + size == end_) {
      if (size > largest_size) return fail(message("more than ", largest_size, " bytes ", where));
      if (!fill(kept)) return fail_truncated(where);
      if (kept == Kept::no) size = 0;
    }
    const char c = buffer_[begin_ + size];
    if (!is_string && (is_space(c) || c == ',' || c == '}' || c == ']')) return take_text(size);
    if (is_string && c == '"' && !is_escaped) return take_text(size + 1);
    is_escaped = c == '\\' && !is_escaped;
  }
}

/// Takes an event of so far `size` that swallows others only up to the next one. False if it
/// swallows none.
bool EventSplitter::cut_at_next_event(std::size_t size) {
  if (num_cut_ == most_cut) return false;
  const std::string_view text{buffer_.data() + begin_, size};
  const std::size_t comma = find_next_event(text);
  if (comma == std::string_view::npos) return false;
  ++num_cut_;
  return take_text(comma);
}

void EventSplitter::begin() {
  constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
  fill(Kept::yes);
  if (std::string_view{buffer_.data(), end_}.substr(0, 3) == byte_order_mark) begin_ = 3;
  if (!skip_space()) {
    fail_truncated("before anything was found");
  } else if (current() == '{') {
    place_ = Place::members;
    ++begin_;
  } else if (current() == '[') {
    is_bare_ = has_events_ = true;
    place_ = Place::events;
    ++begin_;
  } else {
    fail_expected("a Chrome trace, which begins with '{' or '['");
  }
}

/// False if there was none or it is of no interest.
bool EventSplitter::next_member() {
  constexpr auto where = "outside of the events";
  if (!skip_separator('}', where)) return false;
  if (current() == '}') {
    ++begin_;
    place_ = Place::behind;
    return false;
  }
  if (current() != '"') return fail_expected("a key in quotes");
  if (!take_scalar(Kept::yes, where)) return false;
  key_ = text_of(text_);
  if (!skip_space()) return fail_truncated(where);
  if (current() != ':') return fail_expected("':' after a key");
  ++begin_;
  if (!skip_space()) return fail_truncated(where);
  if (key_ == "traceEvents" && current() == '[') {
    ++begin_;
    is_first_ = has_events_ = true;
    place_ = Place::events;
    return false;
  }
  const bool is_wanted = std::ranges::find(members_, key_) != members_.end();
  const Kept kept = is_wanted ? Kept::yes : Kept::no;
  const bool is_bracketed = current() == '{' || current() == '[';
  if (!(is_bracketed ? take_bracketed(kept, where) : take_scalar(kept, where))) return false;
  if (kept == Kept::yes && text_.empty()) return fail_expected("a value");
  return is_wanted;
}

/// False at the end of the events.
bool EventSplitter::next_event() {
  if (!skip_separator(']', "between events")) return false;
  if (current() == ']') {
    ++begin_;
    place_ = is_bare_ ? Place::behind : Place::members;
    return false;
  }
  if (current() != '{') return fail_expected("an event, which begins with '{'");
  return take_bracketed(Kept::yes, "within an event");
}

void EventSplitter::look_behind() {
  place_ = Place::ended;
  if (skip_space()) rest_position_ = offset();
}

/// Always false, as the functions that end so.
bool EventSplitter::fail(const std::string& reason) {
  place_ = Place::ended;
  fault_ = reason;
  return false;
}

bool EventSplitter::fail_expected(const std::string& what) {
  const auto found = static_cast<unsigned char>(current());
  const bool is_printable = found > ' ' && found < 0x7f;
  return fail(message("not valid JSON at byte ", offset(), ": expected ", what, ", found ",
                      is_printable ? message("'", current(), "'")
                                   : message("a byte of value ", static_cast<int>(found))));
}

bool EventSplitter::fail_truncated(const char* where) {
  const std::string& why = source_.fault();
  return fail(message("truncated at byte ", discarded_ + static_cast<std::int64_t>(end_), ", ",
                      where, why.empty() ? "" : message(" (", why, ")")));
}

}  // namespace shardmark
