#include "core/cpu/reduce.hpp"

#include "core/cpu/kernels.hpp"
#include "core/error.hpp"
#include "core/f16.hpp"
#include "tests/support/collective_data.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace shardmark {
namespace {

using conformance::Data;
using conformance::dtypes;
using conformance::reductions;

/// The value of an f16, by the definition.
double defined(std::uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int fraction = half & 1023;
  const double magnitude = exponent == 0   ? std::ldexp(fraction, -24)
                           : exponent < 31 ? std::ldexp(1024 + fraction, exponent - 25)
                                           : std::numeric_limits<double>::infinity();
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(F16, EveryValueIsReadExactlyAndWrittenBack) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    if ((half & 0x7FFF) > 0x7C00) {
      EXPECT_TRUE(std::isnan(from_f16(half))) << bits;
      EXPECT_EQ(to_f16(from_f16(half)), (half & 0x8000) | 0x7E00) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(from_f16(half)), defined(half)) << bits;
    ASSERT_EQ(to_f16(from_f16(half)), half) << bits;
  }
}

/// Between two neighbours, subnormal ones included, and beyond the largest, as if it had one.
TEST(F16, RoundsToNearestEven) {
  for (std::uint16_t half = 0; half < 0x7C00; ++half) {
    const double above = half == 0x7BFF ? 65536 : defined(static_cast<std::uint16_t>(half + 1));
    const auto middle = static_cast<float>((defined(half) + above) / 2);
    const int even = half % 2 == 0 ? half : half + 1;
    ASSERT_EQ(to_f16(middle), even) << half;
    ASSERT_EQ(to_f16(-middle), even | 0x8000) << half;
    ASSERT_EQ(to_f16(std::nextafter(middle, 0.0F)), half) << half;
    ASSERT_EQ(to_f16(std::nextafter(middle, 1e9F)), half + 1) << half;
  }
  EXPECT_EQ(to_f16(1e30F), 0x7C00);
  EXPECT_EQ(to_f16(-std::numeric_limits<float>::infinity()), 0xFC00);
  EXPECT_EQ(to_f16(1e-30F), 0);
  EXPECT_EQ(to_f16(-0.0F), 0x8000);
}

class Untiled final : public TileHook {
 public:
  explicit Untiled(bool wants) : wants_{wants} {}
  [[nodiscard]] bool wants_tiles() const override { return wants_; }
  void between_tiles() override { ++num_calls; }
  int num_calls{0};

 private:
  bool wants_;
};

double combined(Reduction reduction, double y, double x) {
  switch (reduction) {
    case Reduction::sum:
    case Reduction::avg:
      return y + x;
    case Reduction::prod:
      return y * x;
    case Reduction::max:
      return std::max(y, x);
    case Reduction::min:
      return std::min(y, x);
  }
  return 0;
}

class CombineTest : public testing::Test {
 protected:
  Arena arena_{std::int64_t{1} << 24};
  Kernels kernels_{1, arena_};

  template <class Function>
  static void expect(const Data& data, const std::string& what, const Function& expected) {
    for (std::int64_t i = 0; i < data.tensor().numel(); ++i)
      ASSERT_EQ(data.get(i), expected(i)) << what << ", element " << i;
  }
};

TEST_F(CombineTest, EveryDtypeAndReductionIsExact) {
  for (const DType dtype : dtypes)
    for (const Reduction reduction : reductions)
      for (const std::int64_t numel : {0, 1, 17, 5000}) {
        Data x{dtype, numel};
        Data y{dtype, numel};
        const auto value = [&](int rank, std::int64_t i) {
          return conformance::value_at(reduction, rank, i);
        };
        x.fill([&](std::int64_t i) { return value(1, i); });
        y.fill([&](std::int64_t i) { return value(0, i); });
        Untiled hook{false};
        EXPECT_STREQ(kernels_.run(Combine{x.tensor(), y.tensor(), reduction}, hook),
                     "shardmark_combine");
        expect(y, message(name_of(reduction), ' ', name_of(dtype)),
               [&](std::int64_t i) { return combined(reduction, value(0, i), value(1, i)); });
      }
}

TEST_F(CombineTest, DivideRoundsTowardsZeroForIntegers) {
  for (const DType dtype : dtypes)
    for (const int divisor : {1, 3, 8, 1000}) {
      Data x{dtype, 4500};
      const auto value = [](std::int64_t i) { return static_cast<double>(i % 201 - 100); };
      x.fill(value);
      Untiled hook{false};
      kernels_.run(Divide{x.tensor(), divisor}, hook);
      expect(x, message(name_of(dtype), " / ", divisor),
             [&](std::int64_t i) { return conformance::rounded_to(dtype, value(i) / divisor); });
    }
}

TEST_F(CombineTest, IntegersWrapAround) {
  Data x{DType::i8, 3};
  Data y{DType::i8, 3};
  x.fill([](std::int64_t) { return 100; });
  y.fill([](std::int64_t) { return 100; });
  combine(DType::i8, Reduction::sum, x.tensor().data, y.tensor().data, 3);
  expect(y, "sum", [](std::int64_t) { return 200 - 256; });
  const std::int32_t large = 2147483647;
  std::int32_t wide = large;
  combine(DType::i32, Reduction::prod, reinterpret_cast<const std::byte*>(&large),
          reinterpret_cast<std::byte*>(&wide), 1);
  EXPECT_EQ(wide, 1);
}

TEST_F(CombineTest, StridedRowsLeaveTheRestAlone) {
  Data x{DType::f32, 60};
  Data y{DType::f32, 60};
  x.fill([](std::int64_t i) { return static_cast<double>(i); });
  y.fill([](std::int64_t) { return 1; });
  const auto block = [](const Data& data) {
    return data.tensor().reshape({6, 10}).column_block(2, 5);
  };
  Untiled hook{false};
  kernels_.run(Combine{block(x), block(y), Reduction::sum}, hook);
  expect(y, "strided", [](std::int64_t i) {
    return i % 10 >= 2 && i % 10 < 7 ? static_cast<double>(i + 1) : 1.0;
  });
}

/// Communication in flight moves on, also in one long row.
TEST_F(CombineTest, LongOpsAreTiled) {
  constexpr std::int64_t numel = 3'000'001;
  Data x{DType::f32, numel};
  Data y{DType::f32, numel};
  x.fill([](std::int64_t i) { return static_cast<double>(i % 100); });
  y.fill([](std::int64_t) { return 5; });
  Untiled hook{true};
  kernels_.run(Combine{x.tensor(), y.tensor(), Reduction::sum}, hook);
  EXPECT_GT(hook.num_calls, 3);
  expect(y, "tiled", [](std::int64_t i) { return static_cast<double>(i % 100 + 5); });
}

TEST_F(CombineTest, EqualDtypesAreCopied) {
  for (const DType dtype : dtypes) {
    Data x{dtype, 4099};
    Data y{dtype, 4099};
    const auto value = [](std::int64_t i) { return static_cast<double>(i % 200 - 100); };
    x.fill(value);
    Untiled hook{false};
    kernels_.run(Copy{x.tensor(), y.tensor()}, hook);
    expect(y, std::string{name_of(dtype)}, value);
  }
  Data x{DType::f16, 4};
  Data y{DType::f32, 4};
  Untiled hook{false};
  EXPECT_THROW(kernels_.run(Copy{x.tensor(), y.tensor()}, hook), Error);
}

}  // namespace
}  // namespace shardmark
