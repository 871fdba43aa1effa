// Text of a trace before it is a timeline: values, members, escapes, numbers, and where events end.

#include "profiler/read/event_splitter.hpp"
#include "profiler/read/json_scan.hpp"
#include "profiler/read/kineto_event.hpp"
#include "tests/bench/scratch.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace shardmark {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::vector<std::pair<std::string, std::string>> items_of(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> items;
  JsonItems walk{text};
  for (std::string_view key, value; walk.next(key, value);) items.emplace_back(key, value);
  EXPECT_FALSE(walk.broken()) << text;
  return items;
}

TEST(JsonItems, GivesMembersAndElementsWithTheirRawValues) {
  EXPECT_THAT(items_of(R"({"a" : 1, "b": "x, }\"", "c": [1, {"d": 2}] , "e": -1.5e3})"),
              ElementsAre(Pair("a", "1"), Pair("b", R"("x, }\"")"), Pair("c", R"([1, {"d": 2}])"),
                          Pair("e", "-1.5e3")));
  EXPECT_THAT(items_of("[1, -2 , \"three\"]"),
              ElementsAre(Pair("", "1"), Pair("", "-2"), Pair("", "\"three\"")));
  EXPECT_THAT(items_of("{ }"), ElementsAre());
}

TEST(JsonItems, TakesTextWithoutQuotesToTheCommaBeforeTheNextKey) {
  EXPECT_THAT(
      items_of(R"({"name": void gemm<int, 3>(int, char*[2]), "nan": NaN, "inf": -Infinity})"),
      ElementsAre(Pair("name", "void gemm<int, 3>(int, char*[2])"), Pair("nan", "NaN"),
                  Pair("inf", "-Infinity")));
}

TEST(JsonItems, AStringEndsOnlyWhereTheGrammarLetsIt) {
  EXPECT_THAT(items_of(R"({"name": "say "hello" to", "ts": 1})"),
              ElementsAre(Pair("name", R"("say "hello" to")"), Pair("ts", "1")));
}

TEST(JsonItems, SaysThatTextIsNoObject) {
  for (const std::string_view text :
       {R"({"a" 1})", R"({a: 1})", R"({"a":})", R"("a")", R"({"a": "b})", "", "{"}) {
    JsonItems walk{text};
    std::string_view key, value;
    while (walk.next(key, value)) continue;
    EXPECT_TRUE(walk.broken()) << text;
  }
}

TEST(JsonItems, GivesKeysWithoutEscapes) {
  EXPECT_THAT(items_of(R"({"\u0070h": 1, "a\"b": "\u0070"})"),
              ElementsAre(Pair("ph", "1"), Pair("a\"b", R"("\u0070")")));
}

TEST(TextOf, DecodesEscapesToUtf8) {
  bool repaired = false;
  EXPECT_EQ(text_of(R"("a\"b\\c\/d\u00e9\u20ac\ud83d\ude00")", repaired),
            "a\"b\\c/d\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(text_of(R"("line\nbreak\u0007")", repaired), "line break ");
  EXPECT_FALSE(repaired);
}

TEST(TextOf, ReplacesWhatJsonDoesNotAllow) {
  for (const auto& [raw, text] : std::vector<std::pair<std::string, std::string>>{
           {"\"a\xff\xc3(b\"",
            "a?"
            "?(b"},                           // no UTF-8
           {"\"a\nb\tc\"", "a b c"},          // control characters
           {R"("C:\Users")", R"(C:\Users)"},  // unknown escape, and \U is none
           {R"("\ud83d!")", "?!"},            // half of a pair
           {R"("\u12")", "?12"},
           {R"("a"b")", R"(a"b)"}}) {
    bool repaired = false;
    EXPECT_EQ(text_of(raw, repaired), text);
    EXPECT_TRUE(repaired) << raw;
  }
}

std::pair<std::int64_t, int> nanoseconds(std::string_view text) {
  const auto time = nanoseconds_of(text);
  EXPECT_TRUE(time.has_value()) << text;
  return time ? std::pair{time->whole, time->picoseconds} : std::pair{std::int64_t{-1}, -1};
}

TEST(NanosecondsOf, IsExactWhereDoublesAreNot) {
  EXPECT_THAT(nanoseconds("1712195495505583.001"), Pair(1712195495505583001, 0));
  EXPECT_THAT(nanoseconds("4458676524670.502"), Pair(4458676524670502, 0));
  EXPECT_THAT(nanoseconds("0"), Pair(0, 0));
  EXPECT_THAT(nanoseconds("7"), Pair(7000, 0));
  EXPECT_THAT(nanoseconds("-2.5"), Pair(-2500, 0));
  EXPECT_THAT(nanoseconds("\"12.5\""), Pair(12500, 0));
  EXPECT_THAT(nanoseconds("000012.50000"), Pair(12500, 0));
}

TEST(NanosecondsOf, TakesExponents) {
  EXPECT_THAT(nanoseconds("1.305516305133643e+12"), Pair(1305516305133643, 0));
  EXPECT_THAT(nanoseconds("2e-3"), Pair(2, 0));
  EXPECT_THAT(nanoseconds("5E1"), Pair(50000, 0));
  EXPECT_THAT(nanoseconds("0e999999"), Pair(0, 0));
  EXPECT_THAT(nanoseconds("1e-99999"), Pair(0, 0));
}

TEST(NanosecondsOf, RoundsDownAndKeepsPicoseconds) {
  EXPECT_THAT(nanoseconds("1.0009"), Pair(1000, 900));
  EXPECT_THAT(nanoseconds("-1.0009"), Pair(-1001, 100));
  EXPECT_THAT(nanoseconds("-0.0000001"), Pair(-1, 999));
  // Two halves of a nanosecond are one.
  EXPECT_EQ(sum_ns(*nanoseconds_of("1.0005"), *nanoseconds_of("2.0005")), 3001);
  EXPECT_EQ(sum_ns(*nanoseconds_of("1.0005"), *nanoseconds_of("2.0004")), 3000);
  EXPECT_EQ(sum_ns(*nanoseconds_of("5"), *nanoseconds_of("-2.0005")), 2999);
}

TEST(NanosecondsOf, RefusesWhatIsNoTime) {
  for (const std::string_view text :
       {"", "NaN", "Infinity", "-", ".", "1.2.3", "1e", "1e+", "12a", "null", "[1]", "1e30",
        "99999999999999999999999", "9223372036854775807"})
    EXPECT_FALSE(nanoseconds_of(text).has_value()) << text;
}

TEST(IntegerOf, TakesNumbersAndTheEndOfTexts) {
  EXPECT_EQ(integer_of("-3"), -3);
  EXPECT_EQ(integer_of("\"stream 7\""), 7);
  EXPECT_EQ(integer_of("18446744073709551615"), std::nullopt);
  EXPECT_EQ(integer_of("\"Spans\""), std::nullopt);
  EXPECT_EQ(integer_of("1.5"), std::nullopt);
  EXPECT_EQ(id_of("18446744073709551615"), 18446744073709551615U);
  EXPECT_EQ(id_of("99999999999999999999999"), std::nullopt);
}

/// Every event and member, and the fault; with `num_bytes` of spaces in front, so that the blocks
/// in which the text is read end at other places.
struct Pieces {
  std::vector<std::string> items;
  std::string fault;
  std::int64_t rest_position{-1};
};
Pieces pieces_of(const std::string& text, std::size_t num_spaces = 0) {
  const std::string path = bench::scratch_folder() + "/text.json";
  std::ofstream{path, std::ios::binary} << std::string(num_spaces, ' ') + text;
  BlockSource source{path};
  EventSplitter splitter{source, {"wanted"}};
  Pieces pieces;
  for (;;) {
    const EventSplitter::Item item = splitter.next();
    if (item == EventSplitter::Item::end) break;
    const std::string prefix =
        item == EventSplitter::Item::member ? std::string{splitter.key()} + '=' : std::string{};
    pieces.items.push_back(prefix + std::string{splitter.text()});
    const auto at = static_cast<std::size_t>(splitter.position()) - num_spaces;
    EXPECT_EQ(text.substr(at, splitter.text().size()), splitter.text());
  }
  pieces.fault = splitter.fault();
  pieces.rest_position = splitter.rest_position();
  return pieces;
}

TEST(EventSplitter, GivesEventsAndWantedMembers) {
  const Pieces pieces = pieces_of(
      R"({"a": {"traceEvents": [1]}, "wanted": {"x": 1}, "n": 1, "traceEvents": [{"a": "]}"},
      {"b": {"c": [{}]}} , {}], "z": "}", "wanted": "last"} )");
  EXPECT_THAT(pieces.items, ElementsAre(R"(wanted={"x": 1})", R"({"a": "]}"})",
                                        R"({"b": {"c": [{}]}})", "{}", "wanted=\"last\""));
  EXPECT_EQ(pieces.fault, "");
  EXPECT_EQ(pieces.rest_position, -1);
}

TEST(EventSplitter, KnowsQuotesAndBackslashesWhereverABlockEnds) {
  const std::string event = R"({"a\\": "\"}\\\"{", "b": ["\\\\", "\\\"]"]})";
  std::string text = "[";
  for (int i = 0; i < 40; ++i) text += (i == 0 ? "" : ",") + event;
  text += "]";
  // Blocks of 64 bytes in the scanner, of 256 KiB in the splitter.
  for (std::size_t shift = 0; shift < 70; ++shift) {
    const Pieces pieces = pieces_of(text, 256 * 1024 - 100 - shift);
    ASSERT_EQ(pieces.items.size(), 40U) << shift;
    for (const std::string& item : pieces.items) ASSERT_EQ(item, event) << shift;
    ASSERT_EQ(pieces.fault, "");
  }
}

TEST(EventSplitter, NamesThePlaceOfAFault) {
  for (const auto& [text, fault] : std::vector<std::pair<std::string, std::string>>{
           {"", "truncated at byte 0"},
           {"x", "not valid JSON at byte 0: expected a Chrome trace"},
           {"{\n {", "not valid JSON at byte 3: expected a key in quotes, found '{'"},
           {R"({"a" 1})", "not valid JSON at byte 5: expected ':' after a key, found '1'"},
           {R"({"a": 1 "b")", "not valid JSON at byte 8: expected ',' or '}', found '\"'"},
           {R"({"wanted": })", "expected a value, found '}'"},
           {"[{} {}]", "not valid JSON at byte 4: expected ',' or ']', found '{'"},
           {"[{}, 5]", "not valid JSON at byte 5: expected an event, which begins with '{'"},
           {"[{}, \x01", "found a byte of value 1"},
           {R"([{}, {"a": )", "truncated at byte 11, within an event"},
           {"[{},", "truncated at byte 4, between events"},
           {R"({"traceEvents": [{}])", "truncated at byte 20, outside of the events"}})
    EXPECT_THAT(pieces_of(text).fault, HasSubstr(fault)) << text;
}

TEST(EventSplitter, TakesACommaBehindTheLastEventAndSeesWhatFollows) {
  const Pieces pieces = pieces_of("[{\"a\": 1}, ]\n tail");
  EXPECT_THAT(pieces.items, ElementsAre("{\"a\": 1}"));
  EXPECT_EQ(pieces.fault, "");
  EXPECT_EQ(pieces.rest_position, 14);
}

TEST(EventSplitter, AQuoteTooManyCostsOneEvent) {
  const std::string good = "{\n\"ph\": \"X\", \"name\": \"b\"\n}";
  const std::string bad = "{\n\"ph\": \"X\", \"name\": \"a\" {\"\n}";
  const Pieces pieces = pieces_of("[\n" + good + ",\n" + bad + ",\n" + good + ",\n" + good + "\n]");
  EXPECT_THAT(pieces.items, ElementsAre(good, bad, good, good));
  EXPECT_EQ(pieces.fault, "");
}

TEST(EventSplitter, AnEventThatNeverEndsIsCutAtTheNext) {
  std::string text = R"([{"ph": "X", "args": {})";
  for (int i = 0; i < 20000; ++i) text += R"(,{"ph": "X", "name": "b"})";
  const Pieces pieces = pieces_of(text + "]");
  EXPECT_EQ(pieces.items.size(), 20001U);
  EXPECT_EQ(pieces.fault, "");
}

TEST(EventSplitter, AnEventThatEndsAsAnArrayIsCutAtTheNext) {
  const std::string good = R"({"ph": "X", "name": "b"})";
  const Pieces pieces = pieces_of(R"([{"ph": "X", "args": {})" + (',' + good) + ',' + good + ']');
  EXPECT_THAT(pieces.items, ElementsAre(R"({"ph": "X", "args": {})", good, good));
  EXPECT_EQ(pieces.fault, "");
}

TEST(EventSplitter, HoldsAMegabyteAndAMillionBrackets) {
  const std::string big = "{\"name\": \"" + std::string(1 << 20, 'n') + "\"}";
  EXPECT_THAT(pieces_of("[" + big + "," + big + "]").items, ElementsAre(big, big));
  const std::string deep =
      "{\"a\": " + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}";
  EXPECT_THAT(pieces_of("[" + deep + "]").items, ElementsAre(deep));
  EXPECT_THAT(pieces_of("[{\"a\": " + std::string(1'000'000, '[')).fault,
              HasSubstr("within an event"));
}

}  // namespace
}  // namespace shardmark
