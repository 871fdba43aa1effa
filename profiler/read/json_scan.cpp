#include "profiler/read/json_scan.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace shardmark {
namespace {

constexpr std::size_t block_size = 64;

/// One bit per character of a block.
struct Masks {
  std::uint64_t quote{0}, backslash{0}, open{0}, close{0}, control{0};
};

#if defined(__SSE2__)
Masks masks_of(const char* block) {
  Masks masks;
  const auto bits_of = [](__m128i matches) {
    return static_cast<std::uint64_t>(static_cast<unsigned>(_mm_movemask_epi8(matches)));
  };
  for (unsigned i = 0; i < block_size; i += 16) {
    const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + i));
    // Square brackets become curly ones with this bit; nothing else of interest does.
    const __m128i folded = _mm_or_si128(text, _mm_set1_epi8(0x20));
    const __m128i last_control = _mm_set1_epi8(0x1f);
    masks.quote |= bits_of(_mm_cmpeq_epi8(text, _mm_set1_epi8('"'))) << i;
    masks.backslash |= bits_of(_mm_cmpeq_epi8(text, _mm_set1_epi8('\\'))) << i;
    masks.open |= bits_of(_mm_cmpeq_epi8(folded, _mm_set1_epi8('{'))) << i;
    masks.close |= bits_of(_mm_cmpeq_epi8(folded, _mm_set1_epi8('}'))) << i;
    masks.control |= bits_of(_mm_cmpeq_epi8(_mm_min_epu8(text, last_control), text)) << i;
  }
  return masks;
}
#else
Masks masks_of(const char* block) {
  Masks masks;
  for (unsigned i = 0; i < block_size; ++i) {
    const std::uint64_t bit = std::uint64_t{1} << i;
    if (block[i] == '"') masks.quote |= bit;
    if (block[i] == '\\') masks.backslash |= bit;
    if (block[i] == '{' || block[i] == '[') masks.open |= bit;
    if (block[i] == '}' || block[i] == ']') masks.close |= bit;
    if (static_cast<unsigned char>(block[i]) < 0x20) masks.control |= bit;
  }
  return masks;
}
#endif

/// Characters after a backslash that is not itself escaped; `escaped`: the first one is, and then
/// whether the first of the next block is.
std::uint64_t escaped_by(std::uint64_t backslash, bool& escaped) {
  std::uint64_t characters = escaped ? 1 : 0;
  escaped = false;
  for (; backslash != 0; backslash &= backslash - 1) {
    const int at = std::countr_zero(backslash);
    if ((characters >> at & 1) != 0) continue;
    if (at == block_size - 1)
      escaped = true;
    else
      characters |= std::uint64_t{2} << at;
  }
  return characters;
}

/// Bit i: the number of set bits up to and including i is odd.
std::uint64_t parity_up_to(std::uint64_t bits) {
  for (int shift = 1; shift < 64; shift *= 2) bits ^= bits << shift;
  return bits;
}

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
void skip_space(std::string_view& text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
}
char first_after_space(std::string_view text) {
  skip_space(text);
  return text.empty() ? '\0' : text.front();
}

/// Length of the string at the start of `text` with its quotes.
std::size_t string_length(std::string_view text) {
  for (std::size_t at = 1;; ++at) {
    at = text.find_first_of("\"\\", at);
    if (at == std::string_view::npos) return text.size();
    if (text[at] == '\\') {
      ++at;
      continue;
    }
    const char next = first_after_space(text.substr(at + 1));
    if (next == '\0' || std::strchr(",:}]", next) != nullptr) return at + 1;
  }
}

/// Length of a number, a word, or of text that should have had quotes.
std::size_t bare_length(std::string_view text, bool is_member) {
  const std::size_t behind_number =
      std::min(text.find_first_not_of("0123456789+-.eE"), text.size());
  if (behind_number > 0) {
    const char next = first_after_space(text.substr(behind_number));
    if (next == '\0' || std::strchr(",}]", next) != nullptr) return behind_number;
  }
  int depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' && depth > 0) --depth;
    if (c == ']' || c == '}') {
      if (depth == 0) return at;
      --depth;
    }
    if (c == ',' && depth == 0) {
      const char next = first_after_space(text.substr(at + 1));
      if (!is_member || next == '"' || next == '}' || next == '\0') return at;
    }
  }
  return text.size();
}

std::string_view without_space_behind(std::string_view text) {
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

/// The first value of `rest`, which is shortened by it and by space around it. Empty at the end and
/// where none begins.
std::string_view take_value(std::string_view& rest, bool is_member) {
  skip_space(rest);
  if (rest.empty()) return {};
  std::size_t length = 0;
  if (rest.front() == '{' || rest.front() == '[') {
    ValueScanner scanner;
    const char* end = scanner.scan(rest.data(), rest.data() + rest.size());
    length = end == nullptr ? rest.size() : static_cast<std::size_t>(end - rest.data());
  } else {
    length = rest.front() == '"' ? string_length(rest) : bare_length(rest, is_member);
  }
  const std::string_view value = without_space_behind(rest.substr(0, length));
  rest.remove_prefix(length);
  skip_space(rest);
  return value;
}

}  // namespace

const char* ValueScanner::scan(const char* from, const char* end) {
  std::array<char, block_size> rest{};
  for (const char* at = from; at < end; at += block_size) {
    const char* block = at;
    const auto size = static_cast<std::size_t>(end - at);
    if (size < block_size) {
      std::memcpy(rest.data(), at, size);
      block = rest.data();
    }
    const Masks masks = masks_of(block);
    std::uint64_t quote = masks.quote;
    if (masks.backslash != 0 || escaped_) {
      const std::uint64_t escaped = escaped_by(masks.backslash, escaped_);
      quote &= ~escaped;
      // The character behind a short block is the first of the next piece.
      if (size < block_size) escaped_ = (escaped >> size & 1) != 0;
    }
    const std::uint64_t in_string = parity_up_to(quote) ^ in_string_;
    // Behind a short block there are zeros.
    const std::uint64_t valid =
        size < block_size ? (std::uint64_t{1} << size) - 1 : ~std::uint64_t{0};
    const std::uint64_t raw_control = masks.control & in_string & valid;
    std::uint64_t brackets = (masks.open | masks.close) & ~in_string;
    for (; brackets != 0; brackets &= brackets - 1) {
      const int bit = std::countr_zero(brackets);
      depth_ += (masks.open >> bit & 1) != 0 ? 1 : -1;
      if (depth_ > 0) continue;
      const std::uint64_t before = (std::uint64_t{1} << bit) - 1;
      has_raw_control_ = has_raw_control_ || (raw_control & before) != 0;
      return at + bit + 1;
    }
    has_raw_control_ = has_raw_control_ || raw_control != 0;
    in_string_ = (in_string >> 63) != 0 ? ~std::uint64_t{0} : 0;
  }
  return nullptr;
}

JsonItems::JsonItems(std::string_view text) {
  text = without_space_behind(text);
  const bool closes = text.size() >= 2 && ((text.front() == '{' && text.back() == '}') ||
                                           (text.front() == '[' && text.back() == ']'));
  broken_ = !closes;
  if (!closes) return;
  is_object_ = text.front() == '{';
  rest_ = text.substr(1, text.size() - 2);
}

bool JsonItems::next(std::string_view& key, std::string_view& value) {
  while (!rest_.empty() && (is_space(rest_.front()) || rest_.front() == ','))
    rest_.remove_prefix(1);
  if (rest_.empty()) return false;
  if (is_object_) {
    key = rest_.front() == '"' ? take_value(rest_, true) : std::string_view{};
    broken_ = key.empty() || rest_.empty() || rest_.front() != ':';
    if (broken_) return false;
    key = plain_text(key, key_);
    rest_.remove_prefix(1);
  }
  value = take_value(rest_, is_object_);
  broken_ = value.empty() || (value.front() == '"' && (value.size() < 2 || value.back() != '"'));
  return !broken_;
}

std::string_view unquoted(std::string_view value) {
  if (!value.empty() && value.front() == '"') value.remove_prefix(1);
  if (!value.empty() && value.back() == '"') value.remove_suffix(1);
  return value;
}

}  // namespace shardmark
