#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace shardmark {

/// Finds the end of a JSON object or array, 64 bytes at a time, across as many pieces of text as it
/// takes. Knows strings, escapes and nesting and nothing else, so that it also gets past text that
/// no JSON parser accepts; never recurses.
class ValueScanner {
 public:
  /// Goes on at `from`, which is the opening bracket the first time. The place after the value's
  /// end, or null if all of [from, end) belongs to it.
  [[nodiscard]] const char* scan(const char* from, const char* end);
  /// A string so far holds a control character, which JSON wants escaped: the value is not as it
  /// should be, or what was taken for a string lies between two.
  [[nodiscard]] bool has_raw_control() const { return has_raw_control_; }

 private:
  std::int64_t depth_{0};
  std::uint64_t in_string_{0};  ///< all ones if the text so far ends within a string
  bool escaped_{false};         ///< the next character is
  bool has_raw_control_{false};
};

/// The members of an object, or the elements of an array, one after the other; strings keep their
/// quotes. Takes what trace writers have been seen to write: a quote within a string ends it only
/// where the grammar lets it end, and text without quotes lasts until a comma that a key follows or
/// a bracket that it has not opened.
class JsonItems {
 public:
  /// `text`: from bracket to bracket, or else there are no items.
  explicit JsonItems(std::string_view text);
  /// False after the last one. `key`, without quotes and escapes, is valid until the next call and
  /// stays empty in an array.
  [[nodiscard]] bool next(std::string_view& key, std::string_view& value);
  /// The text up to here is no object or array.
  [[nodiscard]] bool broken() const { return broken_; }

 private:
  std::string_view rest_;
  std::string key_;  ///< of the current member, if the text has escapes in it
  bool is_object_{false}, broken_{false};
};

/// Without the quotes around it, escapes as they are.
[[nodiscard]] std::string_view unquoted(std::string_view value);

/// Text of a string (or of a value without quotes) as valid UTF-8: escapes decoded, control
/// characters to spaces, other bytes to '?'. `repaired` is set if the raw text was not as JSON has
/// it.
[[nodiscard]] std::string text_of(std::string_view value, bool& repaired);
[[nodiscard]] std::string text_of(std::string_view value);
/// The same without a copy where there is nothing to decode, as in most names; else in `storage`.
[[nodiscard]] std::string_view plain_text(std::string_view value, std::string& storage);

}  // namespace shardmark
