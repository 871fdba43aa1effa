// Pipelines on threads equal the model on one rank: losses and weight gradients, bitwise where the
// order of sums is the same.

#include "layers/pipeline/split.hpp"
#include "tests/layers/hosts.hpp"
#include "tests/pipeline/programs.hpp"

#include <gmock/gmock.h>

#include <map>
#include <mutex>

namespace shardmark {
namespace {

using test::Lowering;
using test::pipeline_case;
using test::PipelineCase;
using test::ScheduleKind;

void expect_equal_to_serial(const PipelineCase& c, bool bitwise) {
  for (const CheckResult& result : test::check_on_threads(c)) {
    EXPECT_TRUE(result.pass) << c << ": " << result.problem;
    EXPECT_EQ(result.exact, bitwise) << c;
    EXPECT_TRUE(!bitwise || result.max_abs_err == 0) << c;
  }
}

class AllSchedules : public testing::TestWithParam<int> {};

TEST_P(AllSchedules, EqualOneRank) {
  for (PipelineCase c : test::all_schedules({GetParam()}, {4, 8})) {
    const bool in_order = !c.schedule().is_two_way();
    expect_equal_to_serial(c, in_order);
    c.config.dtype = DType::bf16;
    if (c.schedule().num_micro == 8) expect_equal_to_serial(c, in_order);
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, AllSchedules, testing::Values(1, 2, 3, 4));

TEST(PipelineValues, WithTensorAndDataParallelismEqualOneRank) {
  for (const ScheduleKind kind : {ScheduleKind::one_f_one_b, ScheduleKind::zb_v,
                                  ScheduleKind::dualpipe, ScheduleKind::interleaved})
    for (const auto& [tp, dp] : {std::pair{2, 1}, {1, 2}, {2, 2}})
      expect_equal_to_serial(pipeline_case(kind, {.ranks = 2, .micro = 4}, Lowering::split, tp, dp),
                             false);
}

TEST(PipelineValues, OfUnevenStagesAndFewMicroBatchesEqualOneRank) {
  PipelineCase c = pipeline_case(ScheduleKind::one_f_one_b, {.ranks = 3, .micro = 4});
  set_blocks(c, {1, 3, 2});
  expect_equal_to_serial(c, true);
  c = pipeline_case(ScheduleKind::zb_v, {.ranks = 2, .micro = 5});
  set_blocks(c, {2, 1, 1, 3});
  expect_equal_to_serial(c, true);
  for (const int micro : {1, 2})
    for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b})
      expect_equal_to_serial(pipeline_case(kind, {.ranks = 4, .micro = micro}), true);
}

TEST(PipelineValues, OfOtherKindsOfModelsEqualOneRank) {
  PipelineCase c = pipeline_case(ScheduleKind::zb_h1, {.ranks = 3, .micro = 4});
  c.config.shape.positions = Positions::learned;
  c.config.shape.mlp = MlpKind::swiglu;
  c.config.shape.norm = NormKind::rms;
  c.config.shape.kv_heads = 2;
  expect_equal_to_serial(c, true);
  c.config.shape.positions = Positions::rotary;
  expect_equal_to_serial(c, true);
}

/// What backward computes again is what forward had made, to the bit.
TEST(PipelineValues, RecomputationChangesNothing) {
  for (const Recompute recompute : {Recompute::selective, Recompute::full})
    for (const ScheduleKind kind :
         {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved})
      for (const int ranks : {1, 2, 3}) {
        PipelineCase c = pipeline_case(kind, {.ranks = ranks, .micro = 6});
        c.config.recompute = recompute;
        set_blocks(c, std::vector<std::int64_t>(c.config.pipeline.blocks.size(), 2));
        expect_equal_to_serial(c, true);
      }
}

TEST(PipelineValues, OfTiedEmbeddingsEqualOneRank) {
  const auto expect = [](PipelineCase c, bool bitwise) {
    c.config.tied_embeddings = true;
    expect_equal_to_serial(c, bitwise);
  };
  for (const ScheduleKind kind :
       {ScheduleKind::one_f_one_b, ScheduleKind::interleaved, ScheduleKind::zb_v})
    for (const int ranks : {1, 2, 3})
      expect(pipeline_case(kind, {.ranks = ranks, .micro = 6}), true);
  for (const ScheduleKind kind :
       {ScheduleKind::one_f_one_b, ScheduleKind::zb_v, ScheduleKind::dualpipe})
    expect(pipeline_case(kind, {.ranks = 2, .micro = 4}, Lowering::split, 2, 2), false);
}

TEST(PipelineValues, WithSequenceParallelismEqualOneRank) {
  const auto expect = [](PipelineCase c) {
    c.config.parallel.sequence_parallel = true;
    c.config.shape.positions = Positions::learned;
    expect_equal_to_serial(c, false);
  };
  for (const ScheduleKind kind :
       {ScheduleKind::one_f_one_b, ScheduleKind::zb_v, ScheduleKind::dualpipe})
    expect(pipeline_case(kind, {.ranks = 2, .micro = 4}, Lowering::split, 2));
  PipelineCase c =
      pipeline_case(ScheduleKind::one_f_one_b, {.ranks = 2, .micro = 4}, Lowering::split, 2, 2);
  c.config.recompute = Recompute::full;
  c.config.tied_embeddings = true;
  expect(c);
  c = pipeline_case(ScheduleKind::gpipe, {.ranks = 1, .micro = 3}, Lowering::split, 3);
  ModelShape& shape = c.config.shape;
  shape.heads = shape.kv_heads = 6;
  shape.hidden = 48;
  shape.ffn = 66;
  shape.vocab = 42;
  expect(c);
}

TEST(PipelineValues, OfSharedKeyAndValueHeadsEqualOneRank) {
  for (const bool sequence_parallel : {false, true}) {
    PipelineCase c =
        pipeline_case(ScheduleKind::zb_h1, {.ranks = 2, .micro = 4}, Lowering::split, 2);
    c.config.shape.kv_heads = 1;
    c.config.parallel.sequence_parallel = sequence_parallel;
    expect_equal_to_serial(c, false);
  }
}

/// Values of tensors by name.
using Tensors = std::map<std::string, std::vector<float>>;

/// Runs an iteration with `weights` in place of the generated ones. Of all ranks the weights and
/// gradients of both ends of a tie; copies must be equal.
Tensors ends_of_tie_after(const PipelineCase& c, const Tensors& weights) {
  Tensors all;
  std::mutex mutex;
  test::run_on_threads(c, [&](Rank& rank, const LayerConfig& config, test::Host&) {
    const auto program = make_program(rank, config);
    initialize(rank, *program, Values{Values::Kind::random, 7});
    const NamedTensors tensors = program->tensors();
    for (const NamedTensor& named : tensors)
      if (const auto given = weights.find(named.name); given != weights.end())
        rank.backend().write(named.tensor, given->second.data());
    run_phase(*program, Phase::step);
    rank.synchronize();
    const std::lock_guard lock{mutex};
    for (const NamedTensor& named : tensors)
      if (named.name.starts_with("embedding/table") || named.name.starts_with("head/logits/")) {
        const auto [place, is_new] =
            all.try_emplace(named.name, read_f32(rank.backend(), named.tensor));
        EXPECT_TRUE(is_new || place->second == read_f32(rank.backend(), named.tensor))
            << c << " rank " << rank.id() << ": " << named.name;
      }
  });
  return all;
}

std::vector<float> transposed(const std::vector<float>& values, std::int64_t cols) {
  const auto width = static_cast<std::size_t>(cols), height = values.size() / width;
  std::vector<float> result(values.size());
  for (std::size_t i = 0; i < height; ++i)
    for (std::size_t j = 0; j < width; ++j) result[j * height + i] = values[i * width + j];
  return result;
}

/// The model that is not tied, with the same values in the table and, transposed, in the head.
TEST(PipelineValues, ATiedGradientIsTheSumOfBoth) {
  const std::int64_t blocks = 6;
  PipelineCase apart = pipeline_case(ScheduleKind::gpipe, {.ranks = 1, .micro = 6});
  set_blocks(apart, {blocks});
  PipelineCase whole = apart;
  whole.config.tied_embeddings = true;
  const std::vector<float> table = ends_of_tie_after(whole, {}).at("embedding/table");
  const std::int64_t hidden = apart.config.shape.hidden, vocab = apart.config.shape.vocab;
  const Tensors parts = ends_of_tie_after(
      apart, {{"embedding/table", table}, {"head/logits/weight", transposed(table, hidden)}});
  std::vector<float> expected = parts.at("embedding/table_grad");
  const std::vector<float> of_head = transposed(parts.at("head/logits/weight_grad"), vocab);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NE(of_head[i], 0) << i;
    expected[i] += of_head[i];
  }

  for (const ScheduleKind kind : {ScheduleKind::one_f_one_b, ScheduleKind::zb_v})
    for (const int ranks : {1, 2, 3}) {
      PipelineCase c = pipeline_case(kind, {.ranks = ranks, .micro = 6});
      set_blocks(c, pipeline::split_evenly(blocks, c.schedule().num_stages));
      c.config.tied_embeddings = true;
      const Tensors tied = ends_of_tie_after(c, {});
      EXPECT_EQ(tied.at("head/logits/weight"), table) << c;
      for (const char* name : {"embedding/table_grad", "head/logits/weight_grad"})
        for (std::size_t i = 0; i < expected.size(); ++i)
          ASSERT_NEAR(tied.at(name)[i], expected[i], 1e-6) << c << ": " << name << ' ' << i;
    }
}

/// Whether any rank of a pipeline with these steps finds a difference; matching sizes hide it from
/// everything but the values.
TEST(PipelineValues, SwappedMessagesAreCaught) {
  PipelineCase c = pipeline_case(ScheduleKind::gpipe, {.ranks = 3, .micro = 4});
  test::Schedule swapped = c.schedule();
  std::vector<pipeline::Step>& steps = swapped.ranks[0];
  using pipeline::Act;
  std::erase_if(steps, [](const pipeline::Step& step) { return step.action.act == Act::send_F; });
  const auto after_forwards = std::ranges::find(steps, pipeline::Step{{Act::F, 0, 3}, {}}) + 1;
  const auto send = [](int micro) { return pipeline::Step{{Act::send_F, 0, micro}, {}}; };
  steps.insert(after_forwards, {send(1), send(0), send(2), send(3)});
  c.config.pipeline.schedule = std::make_shared<const test::Schedule>(swapped);
  const auto passes = [](const CheckResult& result) { return result.pass; };
  EXPECT_FALSE(std::ranges::all_of(test::check_on_threads(c), passes));
}

}  // namespace
}  // namespace shardmark
