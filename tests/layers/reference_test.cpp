// The cpu backend at tp 1 against the reference backend: equal on every block, and unequal as soon
// as one op is wrong. And: a program submits the same ops on every backend.

#include "core/adaptors.hpp"
#include "core/functions.hpp"
#include "core/record/backend.hpp"
#include "core/reference/backend.hpp"
#include "tests/layers/configs.hpp"
#include "tests/layers/hosts.hpp"

#include <gmock/gmock.h>

namespace shardmark {
namespace {

/// What a check at tp 1 says when the ops run on `backend`.
CheckResult check_on(Backend& backend, const LayerConfig& config) {
  Rank rank{0, Mesh{{}}, backend};
  return check_against_serial(rank, config, backend, 11);
}

/// Every block plain and with each option of a shape turned on.
std::vector<LayerConfig> all_configs() {
  std::vector<ModelShape> shapes(1, test::small_shape(1));
  shapes.front().seq = 24;
  const auto variant = [&](const auto& change) {
    shapes.push_back(shapes.front());
    change(shapes.back());
  };
  variant([](ModelShape& shape) {
    shape.mlp = MlpKind::swiglu;
    shape.norm = NormKind::rms;
    shape.biases = false;
    shape.kv_heads = 3;
    shape.positions = Positions::rotary;
  });
  variant([](ModelShape& shape) {
    shape.gelu = GeluKind::tanh;
    shape.causal = false;
    shape.positions = Positions::learned;
  });
  std::vector<LayerConfig> configs;
  for (const BlockKind block : test::all_blocks())
    for (const ModelShape& shape : shapes)
      for (const DType dtype : {DType::f32, DType::bf16})
        configs.push_back({.block = block, .shape = shape, .parallel = {}, .dtype = dtype});
  return configs;
}

std::string describe(const LayerConfig& config) {
  return message(name_of(config.block), ' ', name_of(config.dtype), ' ', name_of(config.shape.mlp),
                 ' ', name_of(config.shape.positions));
}

TEST(Reference, EqualsTheCpuBackendOnEveryBlock) {
  test::Host host;
  for (const LayerConfig& config : all_configs()) {
    const CheckResult result = check_on(host.cpu, config);
    EXPECT_TRUE(result.pass) << describe(config) << ": " << result.problem;
    EXPECT_GT(result.max_abs_err, 0) << describe(config) << " is compared with itself";
    EXPECT_EQ(result.exact, config.block != BlockKind::block && config.block != BlockKind::model);
  }
}

/// The shape that a run checks: 512 tokens, so that weights are packed and attention has blocks.
TEST(Reference, EqualsTheCpuBackendOnTheReducedShape) {
  test::Host host;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    LayerConfig config;
    config.dtype = dtype;
    const LayerConfig small = reduced_config(config);
    EXPECT_EQ(small.shape.seq, 512);
    const CheckResult result = check_on(host.cpu, small);
    EXPECT_TRUE(result.pass) << result.problem;
  }
}

/// Scales what one kind of op writes first.
class WrongBackend final : public BackendAdaptor {
 public:
  WrongBackend(Backend& inner, std::string_view op, float factor)
      : BackendAdaptor{inner}, op_{op}, factor_{factor} {}
  void execute(const OpRecord& record) override {
    inner().execute(record);
    if (name_of(record.op) != op_) return;
    inner().synchronize();
    const Tensor written = touches(record.op).writes.front();
    for (std::int64_t r = 0; r < written.rows(); ++r)
      for (std::int64_t c = 0; c < written.cols(); ++c)
        written.as<float>()[r * written.row_stride + c] *= factor_;
  }

 private:
  std::string_view op_;
  float factor_;
};

TEST(Reference, TellsWhenOneOpIsWrong) {
  test::Host host;
  LayerConfig config;
  config.block = BlockKind::model;
  config.shape = test::small_shape(1);
  config.shape.seq = 16;
  config.shape.layers = 1;
  ASSERT_TRUE(check_on(host.cpu, config).pass);
  for (const std::string_view op : {"matmul", "sum_rows", "gelu", "gelu_bwd", "norm", "norm_bwd",
                                    "attention", "attention_bwd", "embedding", "embedding_bwd",
                                    "cross_entropy_sum", "cross_entropy_loss", "cross_entropy_bwd"})
    for (const float factor : {-1.0F, 1.0001F}) {
      WrongBackend wrong{host.cpu, op, factor};
      const CheckResult result = check_on(wrong, config);
      EXPECT_FALSE(result.pass) << op << " times " << factor;
      EXPECT_THAT(result.problem, testing::HasSubstr("rank 0: ")) << op;
    }
}

std::vector<std::string> ops_on(Backend& backend, int id, const LayerConfig& config) {
  OpList list;
  Rank rank{id, Mesh{{.tp = config.parallel.tp.size}}, backend, &list};
  const auto program = make_program(rank, config);
  run_phase(*program, Phase::step);
  rank.synchronize();
  std::vector<std::string> lines;
  for (const OpRecord& record : list.ops) lines.push_back(to_string(record));
  rank.set_sink(nullptr);
  return lines;
}

TEST(OpLists, AreEqualOnEveryBackend) {
  LayerConfig config;
  config.shape = test::small_shape(1);
  RecordBackend record;
  ReferenceBackend reference;
  test::Host host;
  const auto recorded = ops_on(record, 0, config);
  EXPECT_GT(recorded.size(), 25U);
  EXPECT_EQ(recorded, ops_on(host.cpu, 0, config));
  EXPECT_EQ(recorded, ops_on(reference, 0, config));
}

TEST(OpLists, AreEqualOnRecordAndCpuOverRanks) {
  test::Split split{{}, 2};
  split.config.shape = test::small_shape(2);
  split.config.parallel.sequence_parallel = true;
  split.config.parallel.overlap = true;
  split.config.parallel.chunks = 4;
  test::run_on_threads(split, [](Rank& rank, const LayerConfig& config, test::Host& host) {
    RecordBackend record;
    EXPECT_EQ(ops_on(record, rank.id(), config), ops_on(host.cpu, rank.id(), config));
  });
}

TEST(Reference, RefusesCommunicationBetweenRanks) {
  ReferenceBackend reference;
  Rank rank{0, Mesh{{.tp = 2}}, reference};
  const Buffer x = rank.allocate({4}, DType::f32, Category::activation);
  try {
    all_reduce(rank, x.tensor(), rank.group(Axis::tp), Lane::tp);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("all_reduce over tp[0,1]"));
  }
}

}  // namespace
}  // namespace shardmark
