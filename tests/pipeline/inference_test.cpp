// Inference: op lists free of races with every fence and not without one, matched, without
// deadlock; bytes, FLOPs and memory by formula; equal to one rank; and a decode step continues what
// a forward pass over the whole sequence makes of its last token.

#include "core/record/channel.hpp"
#include "core/record/deadlock.hpp"
#include "core/record/matching.hpp"
#include "core/record/memory.hpp"
#include "core/record/mutate.hpp"
#include "core/record/races.hpp"
#include "layers/inference_program.hpp"
#include "layers/volume.hpp"
#include "tests/layers/hosts.hpp"
#include "tests/pipeline/programs.hpp"
#include "tests/support/refusal.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <set>

namespace shardmark {
namespace {

using test::Host;
using test::PipelineCase;
using test::RecordedSteps;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// A block or two per stage, two sequences of 6 tokens in a request.
PipelineCase inference_case(InferenceStep step, int pp, int tp, int requests, int tokens = 1) {
  PipelineCase c;
  c.config.block = BlockKind::model;
  ModelShape& shape = c.config.shape;
  shape.heads = shape.kv_heads = 6;
  shape.head_dim = 8;
  shape.hidden = 48;
  shape.ffn = 96;
  shape.vocab = 48;
  shape.seq = 6;
  shape.batch = 2;
  c.config.parallel.pp.size = pp;
  c.config.parallel.tp.size = tp;
  c.config.inference = {step, requests, step == InferenceStep::decode ? tokens : 1};
  std::vector<std::int64_t> blocks(static_cast<std::size_t>(pp), 1);
  blocks.front() = 2;
  set_blocks(c, blocks);
  return c;
}

std::string name_of(const PipelineCase& c) {
  const InferenceConfig& run = *c.config.inference;
  const ModelShape& shape = c.config.shape;
  return message(name_of(run.step), " pp ", c.config.parallel.pp.size, " tp ",
                 c.config.parallel.tp.size, " requests ", run.requests, " tokens ", run.tokens, ' ',
                 name_of(shape.positions), " kv_heads ", shape.kv_heads, ' ',
                 name_of(c.config.dtype));
}

/// Fewer and more requests than stages, one token and several.
std::vector<PipelineCase> all_cases(const std::vector<int>& stages, const std::vector<int>& tps) {
  std::vector<PipelineCase> cases;
  for (const InferenceStep step : {InferenceStep::prefill, InferenceStep::decode})
    for (const int pp : stages)
      for (const int tp : tps)
        for (const int requests : {1, 2, 3, 5})
          for (const int tokens : {1, 2, 4})
            if (tokens == 1 || step == InferenceStep::decode)
              cases.push_back(inference_case(step, pp, tp, requests, tokens));
  return cases;
}

TEST(InferenceRecords, AreFreeOfRacesMatchedAndWithoutDeadlock) {
  for (const PipelineCase& c : all_cases({1, 2, 3, 4}, {1, 2})) {
    const RecordedSteps steps{c, 2};
    for (std::size_t rank = 0; rank < steps.ops.size(); ++rank)
      EXPECT_THAT(find_races(steps.ops[rank]), IsEmpty()) << name_of(c) << " rank " << rank;
    EXPECT_THAT(check_matching(steps.ops), IsEmpty()) << name_of(c);
    EXPECT_THAT(find_deadlock(steps.ops), IsEmpty()) << name_of(c);
  }
}

/// Deletes every Signal and every Await of the second of three iterations, one at a time.
TEST(InferenceRecords, EveryFenceIsNeeded) {
  int num_deleted = 0;
  for (const PipelineCase& c : all_cases({2, 3}, {1})) {
    const RecordedSteps steps{c, 3};
    for (const std::vector<OpRecord>& ops : steps.ops)
      for (std::size_t position = 0; position < ops.size(); ++position) {
        if (kind_of(ops[position].op) != OpKind::ordering) continue;
        if (!ops[position].path->starts_with("1")) continue;
        ++num_deleted;
        EXPECT_THAT(find_races(without_op(ops, position)), Not(IsEmpty()))
            << name_of(c) << ": nobody misses " << to_string(ops[position]);
      }
  }
  EXPECT_GT(num_deleted, 500);
}

/// Ranks connect the channels of their own ops, and wait for the other members.
TEST(InferenceRecords, EveryMemberOfAChannelUsesIt) {
  for (const PipelineCase& c : all_cases({2, 3, 4}, {1, 2})) {
    std::map<ChannelKey, std::set<int>> users;
    std::map<ChannelKey, int> sizes;
    const RecordedSteps steps{c, 1};
    for (std::size_t rank = 0; rank < steps.ops.size(); ++rank)
      for (const OpRecord& record : steps.ops[rank])
        if (const Group* group = group_of(record.op)) {
          const ChannelKey key = channel_key(*group, record.lane);
          users[key].insert(static_cast<int>(rank));
          sizes[key] = group->size;
        }
    for (const auto& [key, ranks] : users)
      EXPECT_EQ(static_cast<int>(ranks.size()), sizes[key])
          << name_of(c) << ", channel " << name_of(std::get<Lane>(key));
  }
}

TEST(InferenceRecords, ADroppedMessageIsCaught) {
  const PipelineCase c = inference_case(InferenceStep::decode, 3, 1, 2, 2);
  const RecordedSteps steps{c, 1};
  int num_dropped = 0;
  for (std::size_t rank = 0; rank < steps.ops.size(); ++rank)
    for (std::size_t position = 0; position < steps.ops[rank].size(); ++position) {
      if (!std::holds_alternative<SendRecv>(steps.ops[rank][position].op)) continue;
      auto ops = steps.ops;
      ops[rank] = without_op(ops[rank], position);
      ++num_dropped;
      EXPECT_THAT(check_matching(ops), Not(IsEmpty())) << "rank " << rank;
      EXPECT_THAT(find_deadlock(ops), Not(IsEmpty())) << "rank " << rank;
    }
  EXPECT_EQ(num_dropped, 3 * 4 * 2) << "three messages of each of 4 passes, with two ends";
}

TEST(InferenceRecords, CommunicationAndFlopsEqualTheFormula) {
  for (const PipelineCase& c : all_cases({1, 3}, {1, 2, 3})) {
    double executed = 0;
    for (int rank = 0; rank < c.ranks(); ++rank) {
      const Recording recording = record_program(c.on(rank), Phase::forward, 1);
      executed += recording.flops;
      EXPECT_NEAR(recording.bytes_wire,
                  total_bytes(communication_volume(c.on(rank), Phase::forward)), 0.5)
          << name_of(c) << " rank " << rank;
    }
    EXPECT_DOUBLE_EQ(executed, model_flops(c.on(0), Phase::forward).causal) << name_of(c);
  }
}

/// 2 x parameters per token, and 4 x width per token that it sees.
TEST(InferenceFlops, OfAStepAreWhatTheShapeSays) {
  const PipelineCase c = inference_case(InferenceStep::decode, 1, 1, 3, 5);
  const double block = 48 * (4 * 48) + 48 * 2 * 96, head = 48 * 48;
  const double tokens = 3 * 5 * 2;
  EXPECT_EQ(model_flops(c.on(0), Phase::forward).causal,
            tokens * (2 * (2 * block + head) + 2 * 4 * 48 * 7));
  const PipelineCase p = inference_case(InferenceStep::prefill, 1, 1, 3);
  const double pairs = 6 * 7 / 2;
  EXPECT_EQ(model_flops(p.on(0), Phase::forward).causal,
            3 * 2 * (6 * 2 * (2 * block) + 2 * head + 2 * 4 * 48 * pairs));
}

TEST(InferenceMemory, IsCachesAndOnePassWithoutGradients) {
  for (const InferenceStep step : {InferenceStep::prefill, InferenceStep::decode}) {
    const PipelineCase few = inference_case(step, 3, 2, 1, 2),
                       many = inference_case(step, 3, 2, 9, 2);
    for (int rank = 0; rank < few.ranks(); ++rank) {
      const Recording small = record_program(few.on(rank), Phase::forward, 1);
      const Recording large = record_program(many.on(rank), Phase::forward, 1);
      EXPECT_EQ(memory_timeline(large.memory).peak[Category::gradient], 0) << "rank " << rank;
      std::set<std::uint32_t> allocated;
      for (const MemoryRecord& record : large.memory) allocated.insert(record.buffer);
      for (const OpRecord& record : large.ops) {
        const Touches touched = touches(record.op);
        for (const auto& tensors : {touched.reads, touched.writes})
          for (const Tensor& tensor : tensors)
            EXPECT_TRUE(!tensor || allocated.contains(tensor.buffer)) << to_string(record);
      }
      if (rank >= 2) continue;  // the first stage has the most blocks
      const std::int64_t added = kv_cache_bytes(many.on(rank)) - kv_cache_bytes(few.on(rank));
      const std::int64_t ids = 8 * 2 * 4 * (step == InferenceStep::prefill ? 1 + 6 : 1);
      EXPECT_EQ(large.tensor_bytes - small.tensor_bytes, added + ids) << "rank " << rank;
      EXPECT_EQ(added, 8 * 2 * 2 * (step == InferenceStep::prefill ? 6 : 7) * 2 * (3 * 8) * 4);
    }
  }
}

/// On several ranks the same kernels on one; there f64.
void expect_equal_to_serial(const PipelineCase& c) {
  for (const CheckResult& result : test::check_on_threads(c)) {
    EXPECT_TRUE(result.pass) << name_of(c) << ": " << result.problem;
    EXPECT_EQ(result.exact, c.ranks() > 1 && c.config.parallel.tp.size == 1) << name_of(c);
    const bool is_rounded = result.exact || c.config.dtype == DType::bf16;
    EXPECT_TRUE(result.exact ? result.max_abs_err == 0 : is_rounded || result.max_abs_err > 0)
        << name_of(c) << ": " << result.max_abs_err;
  }
}

/// As the plain shape; with grouped heads and rotated; with learned positions and a gated MLP.
std::vector<PipelineCase> kinds_of(const PipelineCase& plain) {
  std::vector<PipelineCase> kinds(3, plain);
  kinds[1].config.shape.positions = Positions::rotary;
  kinds[1].config.shape.kv_heads = 3;
  kinds[2].config.shape.positions = Positions::learned;
  kinds[2].config.shape.mlp = MlpKind::swiglu;
  kinds[2].config.shape.norm = NormKind::rms;
  kinds[2].config.shape.kv_heads = 1;  // shared by all tp ranks
  return kinds;
}

TEST(InferenceValues, EqualOneRank) {
  for (const InferenceStep step : {InferenceStep::prefill, InferenceStep::decode})
    for (const auto& [pp, tp, requests] :
         {std::array{1, 1, 2}, {2, 1, 1}, {3, 1, 2}, {3, 1, 5}, {1, 3, 2}, {2, 2, 3}})
      for (PipelineCase c : kinds_of(inference_case(step, pp, tp, requests, 3))) {
        if (tp == 2 && c.config.shape.kv_heads == 3) c.config.shape.kv_heads = 2;
        expect_equal_to_serial(c);
        c.config.dtype = DType::bf16;
        if (requests == 2) expect_equal_to_serial(c);
      }
}

double relative_error(const std::vector<float>& got, const std::vector<float>& expected) {
  double squares = 0, reference = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = static_cast<double>(got[i]) - static_cast<double>(expected[i]);
    squares += error * error;
    reference += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
  }
  return std::sqrt(squares / reference);
}

std::map<std::string, Tensor> tensors_of(const LayerProgram& program) {
  std::map<std::string, Tensor> tensors;
  for (const NamedTensor& named : program.tensors()) tensors[named.name] = named.tensor;
  return tensors;
}

/// Gives a decode step what a forward pass over the whole sequences left in its caches, but for
/// their last rows, and their last tokens.
void hand_over(Backend& backend, const std::map<std::string, Tensor>& whole,
               const std::map<std::string, Tensor>& step, std::int64_t batch) {
  for (const auto& [name, tensor] : step) {
    if (name.ends_with("/cache")) {
      std::vector<float> cache = read_f32(backend, whole.at(name));
      const auto row = static_cast<std::size_t>(tensor.cols());
      const std::size_t length = cache.size() / static_cast<std::size_t>(batch);
      for (std::size_t end = length; end <= cache.size(); end += length)
        std::fill_n(cache.begin() + static_cast<std::ptrdiff_t>(end - row), row, 1e3F);
      backend.write(tensor, cache.data());
    }
    const std::string prompt = name.substr(0, name.find('/')) + "/prompt";
    if (name.ends_with("/token") && whole.contains(prompt)) {
      const std::vector<float> ids = read_f32(backend, whole.at(prompt));
      const std::size_t length = ids.size() / static_cast<std::size_t>(batch);
      std::vector<std::int32_t> latest;
      for (std::size_t end = length; end <= ids.size(); end += length)
        latest.push_back(static_cast<std::int32_t>(ids[end - 1]));
      backend.write(tensor, latest.data());
    }
  }
}

TEST(InferenceValues, ADecodeStepContinuesAForwardPass) {
  constexpr double tolerance = 1e-5;  // f32, sums over at most 96 elements in another order
  for (const auto& [pp, tp] : {std::pair{1, 1}, {3, 1}, {1, 3}})
    for (const PipelineCase& c : kinds_of(inference_case(InferenceStep::decode, pp, tp, 2)))
      test::run_on_threads(c, [&](Rank& rank, const LayerConfig& config, Host& host) {
        LayerConfig whole = config;
        whole.inference->step = InferenceStep::prefill;
        ++whole.shape.seq;
        const Values values{Values::Kind::random, 3};
        const auto forward = make_program(rank, whole), step = make_program(rank, config);
        for (LayerProgram* program : {forward.get(), step.get()})
          initialize(rank, *program, values);
        forward->forward();
        rank.synchronize();
        const auto expected = tensors_of(*forward), got = tensors_of(*step);
        hand_over(host.cpu, expected, got, config.shape.batch);
        step->forward();
        rank.synchronize();
        int num_compared = 0;
        for (const auto& [name, tensor] : got) {
          if (!name.ends_with("/cache") && !name.ends_with("/maximum") && name != "head/logits/y")
            continue;
          ++num_compared;
          EXPECT_LE(
              relative_error(read_f32(host.cpu, tensor), read_f32(host.cpu, expected.at(name))),
              tolerance)
              << name_of(c) << " rank " << rank.id() << ": " << name;
        }
        EXPECT_GE(num_compared, 2) << name_of(c);
      });
}

TEST(InferenceReduced, KeepsRequestsAndStages) {
  PipelineCase c = inference_case(InferenceStep::decode, 3, 2, 7, 100);
  c.config.shape.seq = 4096;
  const LayerConfig small = reduced_config(c.on(3));
  EXPECT_NO_THROW(check_divisible(small));
  EXPECT_EQ(small.inference->requests, 7);
  EXPECT_EQ(small.inference->tokens, 3);
  EXPECT_LE(small.shape.seq, 16);
  EXPECT_THAT(small.pipeline.blocks, testing::ElementsAre(2, 1, 1));
}

TEST(InferenceInput, WhatItDoesNotOfferIsRefused) {
  const auto with = [](const auto& change) {
    PipelineCase c = inference_case(InferenceStep::decode, 3, 1, 2, 2);
    change(c.config);
    return test::refusal([&] { check_divisible(c.config); });
  };
  EXPECT_EQ(with([](LayerConfig&) {}), "accepted");
  EXPECT_THAT(with([](LayerConfig& config) { config.inference->requests = 0; }),
              HasSubstr("requests is 0"));
  EXPECT_THAT(with([](LayerConfig& config) { config.inference->tokens = 0; }),
              HasSubstr("tokens is 0"));
  const auto with_passes = [&](int requests, int tokens) {
    return with([&](LayerConfig& config) {
      config.inference->requests = requests;
      config.inference->tokens = tokens;
    });
  };
  EXPECT_EQ(with_passes(1000, 100), "accepted");
  EXPECT_THAT(with_passes(100'000, 100'000),
              HasSubstr("requests 100000 x tokens 100000 make more"));
  EXPECT_THAT(with([](LayerConfig& config) { config.block = BlockKind::block; }),
              HasSubstr("scope block"));
  EXPECT_THAT(with([](LayerConfig& config) { config.parallel.sequence_parallel = true; }),
              HasSubstr("sequence parallelism"));
  EXPECT_THAT(with([](LayerConfig& config) { config.parallel.dp.size = 2; }), HasSubstr("dp 2"));
}

TEST(InferenceProgram, HasNoBackward) {
  const PipelineCase c = inference_case(InferenceStep::prefill, 3, 1, 1);
  const Recording recording = record_program(c.on(1), Phase::step, 1);
  EXPECT_THROW(recording.program->backward(), Error);
}

}  // namespace
}  // namespace shardmark
