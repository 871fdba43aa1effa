#include "core/cpu/vector_math.hpp"

#include "core/bf16.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace shardmark::kernels {
namespace {

float exp_of(float x) { return exp(splat(x))[0]; }
float erf_of(float x) { return erf(splat(x))[0]; }
constexpr float infinity = std::numeric_limits<float>::infinity();

TEST(VectorMathTest, ExpIsAccurate) {
  double worst = 0;
  for (float x = -87.2F; x < 88.3F; x += 0.0137F)
    worst = std::max(worst, std::abs(exp_of(x) / std::exp(static_cast<double>(x)) - 1));
  EXPECT_LE(worst, 2.5e-7);
}

TEST(VectorMathTest, ExpIsExactAtItsEnds) {
  EXPECT_EQ(exp_of(0), 1.0F);
  EXPECT_EQ(exp_of(-0.0F), 1.0F);
  for (const float x : {-87.34F, -88.0F, -1e4F, -1e30F, -infinity}) EXPECT_EQ(exp_of(x), 0.0F) << x;
  for (const float x : {88.73F, 128.0F, 1e30F, infinity}) EXPECT_EQ(exp_of(x), infinity) << x;
  EXPECT_TRUE(std::isnan(exp_of(std::nanf(""))));
}

TEST(VectorMathTest, ErfIsAccurateAndSaturates) {
  double worst = 0;
  for (float x = -5; x < 5; x += 0.00123F)
    worst = std::max(worst, std::abs(erf_of(x) - std::erf(static_cast<double>(x))));
  EXPECT_LE(worst, 4e-7);
  EXPECT_EQ(erf_of(0), 0.0F);
  for (const float x : {4.0F, 100.0F, 1e30F, infinity}) {
    EXPECT_EQ(erf_of(x), 1.0F);
    EXPECT_EQ(erf_of(-x), -1.0F);
  }
  EXPECT_TRUE(std::isnan(erf_of(std::nanf(""))));
}

TEST(VectorMathTest, SigmoidIsExactFarOut) {
  EXPECT_EQ(sigmoid(splat(0))[0], 0.5F);
  EXPECT_EQ(sigmoid(splat(128))[0], 1.0F);
  EXPECT_EQ(sigmoid(splat(-128))[0], 0.0F);
}

TEST(VectorMathTest, NarrowRoundsLikeTheScalarConversion) {
  for (const float x :
       {1.00390625F, 1.01171875F, -2.71828F, 3.4e38F, 1e-40F, infinity, -infinity, std::nanf("")})
    EXPECT_EQ(narrow(splat(x))[0], to_bf16(x)) << x;
}

TEST(VectorMathTest, ReductionsUseEveryLane) {
  Floats values;
  for (int i = 0; i < width; ++i) values[i] = static_cast<float>(1 << i);
  EXPECT_EQ(sum(values), 65535.0F);
  for (int i = 0; i < width; ++i) {
    Floats one = splat(-3);
    one[i] = 5;
    EXPECT_EQ(maximum(one), 5.0F);
  }
}

}  // namespace
}  // namespace shardmark::kernels
