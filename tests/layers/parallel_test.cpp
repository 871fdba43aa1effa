// Parallel equals serial: every block on 2, 3, 4 and 8 ranks (threads of this process) against the
// same block on one rank, bitwise on exact data where the block has it, within a stated tolerance
// on random data everywhere.

#include "tests/layers/configs.hpp"
#include "tests/layers/hosts.hpp"

#include <gmock/gmock.h>

#include <algorithm>

namespace shardmark {
namespace {

using test::Host;
using test::Split;

class AllSplits : public testing::TestWithParam<Split> {};

TEST_P(AllSplits, EqualTheSerialBlockInF32) {
  for (const CheckResult& result : test::check_on_threads(GetParam()))
    EXPECT_TRUE(result.pass) << result.problem;
}

TEST_P(AllSplits, EqualTheSerialBlockInBf16) {
  Split split = GetParam();
  split.config.dtype = DType::bf16;
  for (const CheckResult& result : test::check_on_threads(split))
    EXPECT_TRUE(result.pass) << result.problem;
}

/// The halves of the backward pass one after the other give the bits of both at once.
TEST_P(AllSplits, SplitBackwardEqualsTheWholeBitwise) {
  const Split& split = GetParam();
  test::run_on_threads(split, [](Rank& rank, const LayerConfig& config, Host& host) {
    const auto program = make_program(rank, config);
    initialize(rank, *program, Values{Values::Kind::random, 5});
    const auto run = [&](const std::vector<Part>& parts) {
      program->forward();
      for (const Part part : parts) program->backward(part);
      rank.synchronize();
      std::vector<std::vector<float>> values;
      for (const NamedTensor& named : program->tensors())
        values.push_back(read_f32(host.cpu, named.tensor));
      return values;
    };
    const auto whole = run({Part::both});
    const auto halves = run({Part::input, Part::weight});
    const NamedTensors tensors = program->tensors();
    for (std::size_t i = 0; i < tensors.size(); ++i)
      EXPECT_EQ(whole[i], halves[i]) << "rank " << rank.id() << ": " << tensors[i].name;
  });
}

std::string name_of_split(const testing::TestParamInfo<Split>& info) {
  std::string name = test::describe(info.param);
  std::ranges::replace(name, '-', '_');
  return name + '_' + std::to_string(info.index);
}
INSTANTIATE_TEST_SUITE_P(Layers, AllSplits, testing::ValuesIn(test::all_splits()), name_of_split);

/// The shapes of the acceptance: 3 ranks with hidden 1536, 8 ranks with hidden 2048.
TEST(ManyRanks, EqualTheSerialBlock) {
  for (const auto& [tp, hidden] : {std::pair{3, 1536}, {8, 2048}})
    for (const BlockKind block :
         {BlockKind::linear_column, BlockKind::linear_row, BlockKind::mlp, BlockKind::attention}) {
      Split split{{}, tp};
      split.config.block = block;
      ModelShape& shape = split.config.shape;
      shape.hidden = hidden;
      shape.head_dim = 64;
      shape.heads = shape.kv_heads = hidden / 64;
      shape.ffn = hidden;
      shape.seq = tp;
      for (const CheckResult& result : test::check_on_threads(split))
        EXPECT_TRUE(result.pass) << split << ": " << result.problem;
    }
}

TEST(Rotary, BlocksEqualTheSerialBlock) {
  Split split{{}, 2};
  split.config.shape = test::small_shape(2);
  split.config.shape.positions = Positions::rotary;
  for (const CheckResult& result : test::check_on_threads(split))
    EXPECT_TRUE(result.pass) << result.problem;
}

/// A checker that cannot fail checks nothing: one wrong bit in one element of any tensor is found,
/// and the message says where.
TEST(Checker, FindsASingleWrongElement) {
  Host host;
  LayerConfig config;
  config.block = BlockKind::mlp;
  config.shape = test::small_shape(1);
  Rank rank{0, Mesh{{}}, host.cpu}, serial_rank{0, Mesh{{}}, host.serial};
  const auto run = [&](Rank& on) {
    auto program = make_program(on, config);
    initialize(on, *program, Values{Values::Kind::exact, 3});
    run_phase(*program, Phase::step);
    on.synchronize();
    return program;
  };
  const auto program = run(rank), serial = run(serial_rank);
  const auto judge = [&] {
    return compare(5, host.cpu, program->tensors(), host.serial, serial->tensors(), true, 1e-5);
  };
  EXPECT_TRUE(judge().pass);
  for (const NamedTensor& named : program->tensors()) {
    float& element = named.tensor.as<
        float>()[named.tensor.cols() + 1 < named.tensor.numel() ? named.tensor.cols() + 1 : 0];
    const float kept = std::exchange(element, element + 1.0F);
    const CheckResult result = judge();
    EXPECT_FALSE(result.pass) << named.name;
    EXPECT_THAT(result.problem, testing::HasSubstr("rank 5: " + named.name));
    element = kept;
  }
}

TEST(Reduced, KeepsTheSplitAndShrinksTheRest) {
  Split split{{}, 8};
  split.config.shape = {.hidden = 8192, .heads = 64, .kv_heads = 8, .head_dim = 128, .ffn = 28672};
  const LayerConfig small = reduced_config(split.on(3));
  EXPECT_EQ(small.shape.heads, 16);
  EXPECT_EQ(small.shape.kv_heads, 8);
  EXPECT_EQ(small.shape.hidden, 512);
  EXPECT_EQ(small.parallel.tp.position, 3);
  EXPECT_NO_THROW(check_divisible(small));
  split.config.shape.kv_heads = 2;
  EXPECT_EQ(reduced_config(split.on(0)).shape.kv_heads, 2);
}

}  // namespace
}  // namespace shardmark
