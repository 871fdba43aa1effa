#include "core/cpu/arena.hpp"

#include "core/error.hpp"

#include <gmock/gmock.h>

#include <cstdint>

namespace shardmark {
namespace {

constexpr std::int64_t mebibyte = 1 << 20;

TEST(ArenaTest, HandsOutAlignedMemoryThatCanBeWritten) {
  Arena arena{8 * mebibyte};
  for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{100}, 3 * mebibyte}) {
    std::byte* const data = arena.allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0U);
    data[0] = data[bytes - 1] = std::byte{1};
  }
}

TEST(ArenaTest, CountsWhatIsInUse) {
  Arena arena{8 * mebibyte};
  std::byte* const a = arena.allocate(100);
  std::byte* const b = arena.allocate(mebibyte);
  EXPECT_EQ(arena.in_use(), 128 + mebibyte);
  arena.deallocate(b);
  EXPECT_EQ(arena.in_use(), 128);
  EXPECT_EQ(arena.peak(), 128 + mebibyte);
  arena.reset_peak();
  EXPECT_EQ(arena.peak(), 128);
  arena.deallocate(a);
  EXPECT_EQ(arena.in_use(), 0);
}

TEST(ArenaTest, JoinsNeighbouringHoles) {
  Arena arena{4 * mebibyte};
  std::byte* const a = arena.allocate(mebibyte);
  std::byte* const b = arena.allocate(mebibyte);
  std::byte* const c = arena.allocate(mebibyte);
  std::byte* const d = arena.allocate(mebibyte);
  arena.deallocate(a);
  arena.deallocate(c);
  EXPECT_THROW((void)arena.allocate(2 * mebibyte), Error);
  arena.deallocate(b);
  EXPECT_EQ(arena.allocate(3 * mebibyte), a);
  arena.deallocate(d);
}

TEST(ArenaTest, ReusesTheFirstHoleThatFits) {
  Arena arena{4 * mebibyte};
  std::byte* const a = arena.allocate(mebibyte);
  (void)arena.allocate(64);
  arena.deallocate(a);
  EXPECT_EQ(arena.allocate(mebibyte / 2), a);
}

TEST(ArenaTest, ErrorNamesTheSizes) {
  Arena arena{2 * mebibyte};
  (void)arena.allocate(640);
  try {
    (void)arena.allocate(5 * mebibyte);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("5242880"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("640"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("2097152"));
  }
  EXPECT_THROW((void)arena.allocate(-1), Error);
  EXPECT_THROW((void)arena.allocate(INT64_MAX), Error);
}

TEST(ArenaTest, ReservationUsesNoMemoryUntilNeeded) {
  Arena arena{std::int64_t{64} << 30};  // 1 TiB does not always fit beside the thread sanitizer
  EXPECT_EQ(arena.resident(), 0);
  arena.prefault(3 * mebibyte);
  EXPECT_EQ(arena.resident(), 4 * mebibyte);
  (void)arena.allocate(mebibyte);
  EXPECT_EQ(arena.resident(), 4 * mebibyte);
}

TEST(ArenaTest, IgnoresForeignPointers) {
  Arena arena{2 * mebibyte};
  std::byte other{};
  arena.deallocate(nullptr);
  arena.deallocate(&other);
  EXPECT_EQ(arena.in_use(), 0);
}

}  // namespace
}  // namespace shardmark
