#include "profiler/read/json_scan.hpp"

#include <cstdint>
#include <optional>

namespace shardmark {
namespace {

void append_utf8(std::string& text, std::uint32_t code) {
  const auto byte = [&](std::uint32_t value) { text += static_cast<char>(value); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xc0 | code >> 6);
    byte(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    byte(0xe0 | code >> 12);
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  } else {
    byte(0xf0 | code >> 18);
    byte(0x80 | (code >> 12 & 0x3f));
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  }
}

/// Length of the valid UTF-8 sequence at the start of `text`, or 0 (Unicode 15, table 3-7).
std::size_t utf8_length(std::string_view text) {
  const auto at = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto follows = [&](std::size_t i) { return (at(i) & 0xc0U) == 0x80U; };
  const unsigned first = at(0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4 || !follows(1)) return 0;
  if (first < 0xe0) return 2;
  if ((first == 0xe0 && at(1) < 0xa0) || (first == 0xed && at(1) > 0x9f)) return 0;
  if ((first == 0xf0 && at(1) < 0x90) || (first == 0xf4 && at(1) > 0x8f)) return 0;
  if (!follows(2)) return 0;
  if (first < 0xf0) return 3;
  return follows(3) ? 4 : 0;
}

/// Four hexadecimal digits at the start of `text`.
std::optional<std::uint32_t> code_unit(std::string_view text) {
  if (text.size() < 4) return std::nullopt;
  std::uint32_t code = 0;
  for (const char c : text.substr(0, 4)) {
    const bool is_digit = c >= '0' && c <= '9';
    const char lower = static_cast<char>(c | 0x20);
    if (!is_digit && (lower < 'a' || lower > 'f')) return std::nullopt;
    code = code * 16 + static_cast<std::uint32_t>(is_digit ? c - '0' : lower - 'a' + 10);
  }
  return code;
}

/// What follows "\u" in `rest`, which is shortened by it. Half a surrogate pair becomes '?'.
void append_escaped_code(std::string& text, std::string_view& rest, bool& repaired) {
  const auto first = code_unit(rest);
  if (first) rest.remove_prefix(4);
  const bool is_high = first && *first >= 0xd800 && *first < 0xdc00;
  if (is_high && rest.substr(0, 2) == "\\u") {
    const auto second = code_unit(rest.substr(2));
    if (second && *second >= 0xdc00 && *second < 0xe000) {
      rest.remove_prefix(6);
      append_utf8(text, 0x10000 + ((*first - 0xd800) << 10) + (*second - 0xdc00));
      return;
    }
  }
  if (!first || (*first >= 0xd800 && *first < 0xe000)) {
    repaired = true;
    text += '?';
  } else if (*first < 0x20) {
    text += ' ';
  } else {
    append_utf8(text, *first);
  }
}

/// What follows a backslash in `rest`, which is shortened by it.
void append_escaped(std::string& text, std::string_view& rest, bool& repaired) {
  constexpr std::string_view known = "\"\\/bfnrtu";
  const char c = rest.empty() ? '\0' : rest.front();
  if (known.find(c) == std::string_view::npos) {
    // A path of Windows, most likely.
    repaired = true;
    text += '\\';
    return;
  }
  rest.remove_prefix(1);
  if (c == 'u')
    append_escaped_code(text, rest, repaired);
  else
    text += c == '"' || c == '\\' || c == '/' ? c : ' ';
}

}  // namespace

std::string text_of(std::string_view value, bool& repaired) {
  std::string_view rest = unquoted(value);
  std::string text;
  text.reserve(rest.size());
  while (!rest.empty()) {
    const char c = rest.front();
    const std::size_t length = utf8_length(rest);
    if (c == '\\') {
      rest.remove_prefix(1);
      append_escaped(text, rest, repaired);
    } else if (length == 0 || (c >= '\0' && c < ' ')) {
      repaired = true;
      text += length == 0 ? '?' : ' ';
      rest.remove_prefix(1);
    } else {
      repaired = repaired || c == '"';
      text += rest.substr(0, length);
      rest.remove_prefix(length);
    }
  }
  return text;
}

std::string text_of(std::string_view value) {
  bool repaired = false;
  return text_of(value, repaired);
}

std::string_view plain_text(std::string_view value, std::string& storage) {
  value = unquoted(value);
  if (value.find('\\') == std::string_view::npos) return value;
  storage = text_of(value);
  return storage;
}

}  // namespace shardmark
