// Weight gradients of micro-batches add up in the layers' buffers: on 1, 2 and 3 ranks, bitwise on
// exact data, and no op that writes a weight gradient may forget it.

#include "core/adaptors.hpp"
#include "core/functions.hpp"
#include "core/record/races.hpp"
#include "core/reference/backend.hpp"
#include "tests/layers/configs.hpp"
#include "tests/layers/hosts.hpp"
#include "tests/support/refusal.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace shardmark {
namespace {

using test::Host;
using test::Split;
using testing::HasSubstr;

/// The gradients of weights, which have the weights' names.
NamedTensors weight_gradients(const LayerProgram& program) {
  const NamedTensors all = program.tensors();
  std::set<std::string> names;
  for (const NamedTensor& named : all)
    if (named.role == Role::weight) names.insert(named.name + "_grad");
  NamedTensors gradients;
  for (const NamedTensor& named : all)
    if (names.contains(named.name)) gradients.push_back(named);
  EXPECT_EQ(gradients.size(), names.size());
  return gradients;
}

/// The program after a step for each of the micro-batches that these seeds make.
std::unique_ptr<LayerProgram> after(Rank& rank, const LayerConfig& config, Values::Kind kind,
                                    const std::vector<std::uint64_t>& micro_batches) {
  auto program = make_program(rank, config);
  initialize(rank, *program, Values{kind, 1});
  for (const NamedTensor& gradient : weight_gradients(*program)) fill(rank, gradient.tensor, 0);
  for (const std::uint64_t seed : micro_batches) {
    for (const NamedTensor& named : program->tensors())
      if (named.role == Role::input) write_values(rank.backend(), named, Values{kind, seed});
    run_phase(*program, Phase::step);
  }
  rank.synchronize();
  return program;
}

double norm_of(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

/// Compares gradients after two micro-batches with the sums of those after one each.
void expect_sums(Rank& rank, const LayerConfig& config, Values::Kind kind) {
  LayerConfig overwrites = config;
  overwrites.accumulate_gradients = false;
  const auto first = after(rank, overwrites, kind, {2}),
             second = after(rank, overwrites, kind, {3});
  const auto both = after(rank, config, kind, {2, 3});
  const NamedTensors parts[] = {weight_gradients(*first), weight_gradients(*second),
                                weight_gradients(*both)};
  for (std::size_t t = 0; t < parts[0].size(); ++t) {
    const auto where = message("rank ", rank.id(), ": ", parts[0][t].name);
    const auto read = [&](int which) { return read_f32(rank.backend(), parts[which][t].tensor); };
    const auto one = read(0), other = read(1), sum = read(2);
    std::vector<double> expected, errors;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      if (kind == Values::Kind::exact) {
        ASSERT_EQ(sum[i], one[i] + other[i]) << where << ", element " << i;
      }
      expected.push_back(static_cast<double>(one[i]) + static_cast<double>(other[i]));
      errors.push_back(static_cast<double>(sum[i]) - expected.back());
    }
    EXPECT_LE(norm_of(errors), 1e-6 * norm_of(expected)) << where;
    if (kind == Values::Kind::random) {
      EXPECT_TRUE(std::ranges::any_of(one, [](float value) { return value != 0; }))
          << where << " has nothing to add to";
    }
  }
}

/// Every block that may accumulate, with and without what is optional in it.
std::vector<Split> accumulating_splits() {
  std::vector<Split> splits;
  for (const BlockKind block : test::all_blocks())
    for (const int tp : {1, 2, 3})
      for (const bool sp : {false, true})
        for (const bool gated : {false, true}) {
          const bool has_norms = block == BlockKind::block || block == BlockKind::model;
          if (sp && (tp == 1 || has_norms)) continue;
          Split split{{}, tp};
          split.config.block = block;
          split.config.shape = test::small_shape(tp);
          split.config.gather_output = !sp;
          split.config.parallel.sequence_parallel = sp;
          split.config.accumulate_gradients = true;
          ModelShape& shape = split.config.shape;
          if (block == BlockKind::model) shape.positions = Positions::learned;
          if (gated) {
            shape.mlp = MlpKind::swiglu;
            shape.norm = NormKind::rms;
            shape.biases = false;
            shape.kv_heads = 6;
          }
          splits.push_back(split);
        }
  return splits;
}

class Accumulating : public testing::TestWithParam<Split> {};

TEST_P(Accumulating, TwoMicroBatchesGiveTheSumOfBoth) {
  Split split = GetParam();
  const bool has_exact_data =
      split.config.block != BlockKind::block && split.config.block != BlockKind::model;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    split.config.dtype = dtype;
    test::run_on_threads(split, [&](Rank& rank, const LayerConfig& config, Host& host) {
      expect_sums(rank, config, Values::Kind::random);
      if (!has_exact_data) return;
      expect_sums(rank, config, Values::Kind::exact);
      LayerConfig whole = config;
      whole.parallel = {};
      Rank lone_rank{0, Mesh{{}}, host.serial};
      const auto serial = after(lone_rank, whole, Values::Kind::exact, {2, 3, 4});
      const auto program = after(rank, config, Values::Kind::exact, {2, 3, 4});
      const CheckResult result = compare(rank.id(), host.cpu, weight_gradients(*program),
                                         host.serial, serial->tensors(), true, 0);
      EXPECT_TRUE(result.pass) << result.problem;
    });
  }
}

std::string name_of_split(const testing::TestParamInfo<Split>& info) {
  std::string name = test::describe(info.param);
  std::ranges::replace(name, '-', '_');
  return name + '_' + std::to_string(info.index);
}
INSTANTIATE_TEST_SUITE_P(Layers, Accumulating, testing::ValuesIn(accumulating_splits()),
                         name_of_split);

/// Where an op adds to what is there; empty: the op does not.
std::vector<Tensor> sums_of(const Op& op) {
  if (const auto* o = std::get_if<Matmul>(&op); o != nullptr && o->accumulate) return {o->c};
  if (const auto* o = std::get_if<SumRows>(&op); o != nullptr && o->accumulate) return {o->y};
  if (const auto* o = std::get_if<NormBackward>(&op); o != nullptr && o->accumulate)
    return {o->dgain, o->dbias};
  if (const auto* o = std::get_if<EmbeddingBackward>(&op); o != nullptr && o->accumulate)
    return {o->dtable};
  return {};
}

LayerConfig small_model() {
  LayerConfig config;
  config.block = BlockKind::model;
  config.shape = test::small_shape(1);
  config.shape.layers = 1;
  config.shape.positions = Positions::learned;
  config.accumulate_gradients = true;
  return config;
}
/// Table and positions; gain with bias of three norms; weight and bias of four linears; logits.
constexpr int num_sums_of_small_model = 2 + 3 + 4 * 2 + 1;

TEST(Touches, OfASumIncludeWhatItAddsTo) {
  const Recording recording = record_program(small_model(), Phase::step, 1);
  int num_sums = 0;
  for (const OpRecord& record : recording.ops) {
    const std::vector<Tensor> sums = sums_of(record.op);
    num_sums += sums.empty() ? 0 : 1;
    const std::vector<Tensor> reads = touches(record.op).reads;
    for (const Tensor& sum : sums)
      EXPECT_TRUE(std::ranges::any_of(reads, [&](const Tensor& read) {
        return read.buffer == sum.buffer && read.offset == sum.offset;
      })) << to_string(record);
  }
  EXPECT_EQ(num_sums, num_sums_of_small_model);
  EXPECT_THAT(find_races(recording.ops), testing::IsEmpty());
}

void forget(Op& op) {
  if (auto* o = std::get_if<Matmul>(&op)) o->accumulate = false;
  if (auto* o = std::get_if<SumRows>(&op)) o->accumulate = false;
  if (auto* o = std::get_if<NormBackward>(&op)) o->accumulate = false;
  if (auto* o = std::get_if<EmbeddingBackward>(&op)) o->accumulate = false;
}

/// Lets one op in a run overwrite what it should add to.
class ForgetfulBackend final : public BackendAdaptor {
 public:
  ForgetfulBackend(Backend& inner, int forgotten) : BackendAdaptor{inner}, num_left_{forgotten} {}
  void execute(const OpRecord& record) override {
    OpRecord changed = record;
    if (!sums_of(record.op).empty() && num_left_-- == 0) forget(changed.op);
    inner().execute(changed);
  }

 private:
  int num_left_;
};

TEST(Mutation, EveryOpThatForgetsToAddIsNoticed) {
  Host host;
  Rank serial_rank{0, Mesh{{}}, host.serial};
  const LayerConfig config = small_model();
  const auto right = after(serial_rank, config, Values::Kind::random, {2, 3});
  for (int forgotten = -1; forgotten < num_sums_of_small_model; ++forgotten) {
    // The sums of the first micro-batch begin with nothing, those of the second come after them.
    const int which = forgotten < 0 ? -1 : num_sums_of_small_model + forgotten;
    ForgetfulBackend forgetful{host.cpu, which};
    Rank rank{0, Mesh{{}}, forgetful};
    const auto program = after(rank, config, Values::Kind::random, {2, 3});
    const CheckResult result =
        compare(0, forgetful, weight_gradients(*program), host.serial, right->tensors(), true, 0);
    EXPECT_EQ(result.pass, forgotten < 0) << "sum " << forgotten << ": " << result.problem;
  }
}

TEST(Reference, AddsMicroBatchesUpAsTheCpuBackendDoes) {
  Host host;
  ReferenceBackend reference;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    LayerConfig config = small_model();
    config.dtype = dtype;
    Rank rank{0, Mesh{{}}, host.cpu}, reference_rank{0, Mesh{{}}, reference};
    const auto program = after(rank, config, Values::Kind::random, {2, 3});
    const auto expected = after(reference_rank, config, Values::Kind::random, {2, 3});
    const CheckResult result =
        compare(0, host.cpu, weight_gradients(*program), reference, expected->tensors(), false,
                dtype == DType::bf16 ? 2e-2 : 1e-5);
    EXPECT_TRUE(result.pass) << name_of(dtype) << ": " << result.problem;
  }
}

std::string refusal(const LayerConfig& config) {
  return test::refusal([&] { check_divisible(config); });
}

TEST(Refused, SumsOverRanksThatWouldTakeMicroBatchesInAgain) {
  LayerConfig config;
  config.shape = test::small_shape(2);
  config.parallel.tp = Group{Axis::tp, 0, 1, 2, 0};
  config.accumulate_gradients = true;
  EXPECT_EQ(refusal(config), "accepted");

  config.parallel.sequence_parallel = true;
  EXPECT_THAT(refusal(config), HasSubstr("--sp with tp 2 sums the gradients of norms"));
  EXPECT_THAT(refusal(config), HasSubstr("leave out --sp, or try tp 1"));
  config.block = BlockKind::mlp;
  EXPECT_EQ(refusal(config), "accepted") << "no norms";

  config.parallel.sequence_parallel = false;
  config.block = BlockKind::model;
  config.shape.kv_heads = 1;
  EXPECT_THAT(refusal(config), HasSubstr("tp 2 with kv_heads 1 sums the gradients of shared KV "));
  EXPECT_THAT(refusal(config), HasSubstr("try kv_heads 2 or a multiple of it, or tp 1"));
  config.shape.kv_heads = 2;
  EXPECT_EQ(refusal(config), "accepted");

  config.block = BlockKind::mlp;
  config.parallel.context.kind = ContextKind::ring;
  config.parallel.context.cp = Group{Axis::cp, 0, 2, 2, 0};
  EXPECT_THAT(refusal(config), HasSubstr("cp 2 sums the weight gradients"));
  config.accumulate_gradients = false;
  EXPECT_EQ(refusal(config), "accepted");
}

}  // namespace
}  // namespace shardmark
