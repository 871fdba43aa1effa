#include "collectives/exact.hpp"

#include "tests/collectives/elements.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace shardmark {
namespace {

constexpr Reduction reductions[] = {Reduction::sum, Reduction::prod, Reduction::max, Reduction::min,
                                    Reduction::avg};
constexpr std::int64_t numel = 31;

std::vector<std::byte> bytes_for(DType dtype, std::int64_t count) {
  return std::vector<std::byte>(static_cast<std::size_t>(count * size_of(dtype)));
}

std::vector<double> input_of(const ExactData& data, int member) {
  std::vector<std::byte> bytes = bytes_for(data.dtype, data.input_numel(member));
  fill_exact(data, member, bytes.data());
  return load_all(data.dtype, bytes);
}

std::vector<double> expected_of(const ExactData& data, int member) {
  std::vector<std::byte> bytes = bytes_for(data.dtype, data.output_numel(member));
  fill_expected(data, member, bytes.data());
  EXPECT_EQ(check_exact(data, member, bytes.data()).num_wrong, 0);
  return load_all(data.dtype, bytes);
}

double combined(Reduction reduction, double a, double b) {
  switch (reduction) {
    case Reduction::prod:
      return a * b;
    case Reduction::max:
      return std::max(a, b);
    case Reduction::min:
      return std::min(a, b);
    default:
      return a + b;
  }
}

/// Reduces in the dtype, rounding after every step, in a random tree.
double reduced(const ExactData& data, std::vector<double> values, std::mt19937& random) {
  std::ranges::shuffle(values, random);
  while (values.size() > 1) {
    std::swap(values.back(), values[random() % values.size()]);
    const double b = values.back();
    values.pop_back();
    values.back() = rounded(data.dtype, combined(data.reduction, values.back(), b));
  }
  return data.reduction == Reduction::avg ? values[0] / data.group_size : values[0];
}

void expect_any_order(DType dtype, Reduction reduction, int members) {
  const ExactData data{Collective::all_reduce, dtype, reduction, members, 0, numel, {}, 3};
  std::vector<std::vector<double>> inputs;
  for (int member = 0; member < members; ++member) inputs.push_back(input_of(data, member));
  const std::vector<double> expected = expected_of(data, 0);
  std::mt19937 random{7};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    std::vector<double> values;
    for (const auto& input : inputs) values.push_back(input[i]);
    ASSERT_EQ(reduced(data, values, random), expected[i])
        << name_of(dtype) << ' ' << name_of(reduction) << ' ' << members << " members, element "
        << i;
  }
}

TEST(Exact, AnyOrderGivesTheExpected) {
  for (const DType dtype : all_dtypes)
    for (const Reduction reduction : reductions)
      for (const int members : {1, 2, 3, 7, 16, 61, 200, 1024})
        expect_any_order(dtype, reduction, members);
}

TEST(Exact, ElementsDiffer) {
  for (const DType dtype : all_dtypes)
    for (const Reduction reduction : reductions) {
      const ExactData data{Collective::all_reduce, dtype, reduction, 4, 0, 4096};
      const std::vector<double> values = expected_of(data, 0);
      for (const std::size_t shift : {1, 2, 64, 1024}) {
        std::size_t equal = 0;
        for (std::size_t i = 0; i + shift < values.size(); ++i)
          equal += values[i] == values[i + shift] ? 1 : 0;
        EXPECT_LT(equal, values.size() / 2) << name_of(dtype) << ' ' << name_of(reduction);
      }
    }
}

TEST(Exact, MembersAndSeedsDiffer) {
  ExactData data{Collective::all_gather, DType::i8, Reduction::sum, 3, 0, 100};
  const std::vector<double> first = input_of(data, 0);
  EXPECT_NE(first, input_of(data, 1));
  data.seed = 1;
  EXPECT_NE(first, input_of(data, 0));
}

TEST(Exact, BlocksComeFromTheirMembers) {
  const std::vector<std::int64_t> counts{1, 2, 0, 4, 0, 3, 2, 5, 1};
  ExactData data{Collective::all_to_all_v, DType::i32, Reduction::sum, 3, 0, 0, counts};
  EXPECT_EQ(data.input_numel(1), 7);
  EXPECT_EQ(data.output_numel(1), 7);
  std::vector<double> wanted;
  const std::vector<double> from0 = input_of(data, 0), from2 = input_of(data, 2);
  wanted.insert(wanted.end(), from0.begin() + 1, from0.begin() + 3);
  wanted.insert(wanted.end(), from2.begin() + 2, from2.begin() + 7);
  EXPECT_EQ(expected_of(data, 1), wanted);

  data = {Collective::scatter, DType::i32, Reduction::sum, 3, 2, 5};
  EXPECT_EQ(data.input_numel(0), 0);
  EXPECT_EQ(data.input_numel(2), 15);
  const std::vector<double> root = input_of(data, 2);
  EXPECT_EQ(expected_of(data, 1), (std::vector<double>{root.begin() + 5, root.begin() + 10}));
}

TEST(Exact, WrongElementsAreCountedAndNamed) {
  const ExactData data{Collective::all_reduce, DType::i32, Reduction::max, 2, 0, 10};
  std::vector<std::int32_t> values(10);
  fill_expected(data, 0, values.data());
  const std::int32_t was = values[4];
  values[4] = 1 << 30;
  values[9] = 1 << 30;
  const ExactResult result = check_exact(data, 0, values.data());
  EXPECT_EQ(result.num_wrong, 2);
  EXPECT_EQ(result.first_wrong, 4);
  EXPECT_EQ(result.expected, was);
  EXPECT_EQ(result.to_string(10).substr(0, 44), "2 of 10 elements are wrong, the first at 4: ");
}

}  // namespace
}  // namespace shardmark
