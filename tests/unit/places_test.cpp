#include "core/places.hpp"

#include "core/error.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace shardmark {
namespace {

using Starts = std::vector<std::int64_t>;

/// The definition, for one pair.
bool sees(const Visibility& v, std::int64_t query, std::int64_t key) {
  if (v.causal && key > query) return false;
  if (v.window > 0 && std::abs(query - key) >= v.window) return false;
  for (const std::int64_t start : v.starts)
    if ((query >= start) != (key >= start)) return false;
  return true;
}

/// What part `part` of `parts` holds of `seq` tokens: one piece, two pieces, or every n-th token.
std::vector<Places> parts_of(std::int64_t seq, std::int64_t parts, std::int64_t part) {
  const std::int64_t half = seq / parts / 2;
  std::vector<Places> held;
  held.push_back({{Places::Run{part * 2 * half, 2 * half, 1}, Places::Run{}}});
  held.push_back(
      {{Places::Run{part * half, half, 1}, Places::Run{(2 * parts - 1 - part) * half, half, 1}}});
  held.push_back({{Places::Run{part, 2 * half, parts}, Places::Run{}}});
  return held;
}

/// Places of all parts, parts of parts, and some that no order makes.
std::vector<Places> all_places() {
  std::vector<Places> all{Places::all(24),
                          Places{},
                          {{Places::Run{5, 3, 2}, Places::Run{1, 4, 3}}},
                          {{Places::Run{0, 1, 1}, Places::Run{}}}};
  for (const std::int64_t parts : {2, 3})
    for (std::int64_t part = 0; part < parts; ++part)
      for (const Places& places : parts_of(24, parts, part)) {
        all.push_back(places);
        all.push_back(places.slice(1, places.count() / 2));
      }
  return all;
}

std::string described(const Visibility& v, const Places& queries, const Places& keys) {
  std::string text = v.causal ? "causal" : "full";
  text += " window " + std::to_string(v.window) + " starts";
  for (const std::int64_t start : v.starts) text += ' ' + std::to_string(start);
  for (const Places* places : {&queries, &keys}) {
    text += places == &queries ? " queries" : " keys";
    for (std::int64_t row = 0; row < places->count(); ++row)
      text += ' ' + std::to_string((*places)[row]);
  }
  return text;
}

/// Calls visit(visibility, queries, keys).
template <class Visit>
void for_cases(const Visit& visit) {
  const std::vector<Starts> packings{{}, {0}, {0, 1, 9, 10, 23}, {0, 12}};
  const std::vector<Places> places = all_places();
  for (const bool causal : {false, true})
    for (const std::int64_t window : {0, 1, 2, 7, 24, 100})
      for (const Starts& starts : packings)
        for (const Places& queries : places)
          for (const Places& keys : places)
            visit(Visibility{causal, window, starts}, queries, keys);
}

TEST(PlacesTest, RowsAndSlicesAreTheirRuns) {
  const Places places{{Places::Run{4, 3, 2}, Places::Run{1, 2, 5}}};
  const std::vector<std::int64_t> listed{4, 6, 8, 1, 6};
  ASSERT_EQ(places.count(), 5);
  for (std::int64_t row = 0; row < 5; ++row)
    EXPECT_EQ(places[row], listed[static_cast<std::size_t>(row)]) << row;
  for (std::int64_t first = 0; first <= 5; ++first)
    for (std::int64_t count = 0; first + count <= 5; ++count) {
      const Places part = places.slice(first, count);
      ASSERT_EQ(part.count(), count) << first;
      for (std::int64_t row = 0; row < count; ++row)
        EXPECT_EQ(part[row], places[first + row]) << first << ' ' << count << ' ' << row;
    }
  EXPECT_EQ(Places::all(7)[6], 6);
  EXPECT_EQ(Places::all(7).slice(0, 7), Places::all(7));
  EXPECT_THROW((void)places.slice(3, 3), Error);
  EXPECT_THROW((void)places.slice(-1, 2), Error);
}

TEST(PlacesTest, EveryTokenIsHeldOnce) {
  for (const std::int64_t parts : {1, 2, 3, 4})
    for (std::size_t order = 0; order < 3; ++order) {
      std::vector<int> held(48, 0);
      for (std::int64_t part = 0; part < parts; ++part) {
        const Places places = parts_of(48, parts, part)[order];
        for (std::int64_t row = 0; row < places.count(); ++row)
          ++held[static_cast<std::size_t>(places[row])];
      }
      EXPECT_EQ(held, std::vector<int>(48, 1)) << order << ' ' << parts;
    }
}

TEST(PlacesTest, QueriesSeeARangeOfEachRun) {
  for_cases([](const Visibility& v, const Places& queries, const Places& keys) {
    for (std::int64_t row = 0; row < queries.count(); ++row)
      for (const Places::Run& run : keys.runs) {
        const KeyRange range = visible_keys(v, queries[row], run);
        ASSERT_LE(0, range.first);
        ASSERT_LE(range.first, range.last);
        ASSERT_LE(range.last, run.count);
        for (std::int64_t key = 0; key < run.count; ++key)
          ASSERT_EQ(key >= range.first && key < range.last, sees(v, queries[row], run.place(key)))
              << described(v, queries, keys) << "; query " << row << " key " << key;
      }
  });
}

TEST(PlacesTest, PairsAreCounted) {
  for_cases([](const Visibility& v, const Places& queries, const Places& keys) {
    double pairs = 0;
    for (std::int64_t row = 0; row < queries.count(); ++row)
      for (std::int64_t key = 0; key < keys.count(); ++key)
        pairs += sees(v, queries[row], keys[key]) ? 1 : 0;
    ASSERT_EQ(visible_pairs(v, queries, keys), pairs) << described(v, queries, keys);
  });
}

TEST(PlacesTest, MillionsOfTokensAreCountedByFormula) {
  const std::int64_t seq = std::int64_t{1} << 20;
  const Places all = Places::all(seq);
  const auto n = static_cast<double>(seq);
  EXPECT_EQ(visible_pairs({false}, all, all), n * n);
  EXPECT_EQ(visible_pairs({true}, all, all), n * (n + 1) / 2);
  EXPECT_EQ(visible_pairs({true, 1024}, all, all), n * 1024 - 1024.0 * 1023 / 2);
  EXPECT_EQ(visible_pairs({false, 1024}, all, all), n * 2047 - 1024.0 * 1023);
  const Starts starts{0, seq / 4};
  EXPECT_EQ(visible_pairs({true, 0, starts}, all, all),
            n / 4 * (n / 4 + 1) / 2 + 3 * n / 4 * (3 * n / 4 + 1) / 2);
}

TEST(PlacesTest, StartsOfPackedSequences) {
  const Starts starts{0, 3, 4};
  EXPECT_EQ(start_of({}, 9), 0);
  EXPECT_EQ(start_of(starts, 2), 0);
  EXPECT_EQ(start_of(starts, 3), 3);
  EXPECT_EQ(start_of(starts, 100), 4);
}

}  // namespace
}  // namespace shardmark
