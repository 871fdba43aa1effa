// Blocks on a cp group: their op lists are clean and cost what the formulas say, every rank holds
// the tokens that it names, and values equal those of one rank.

#include "core/record/backend.hpp"
#include "core/record/deadlock.hpp"
#include "core/record/matching.hpp"
#include "core/record/mutate.hpp"
#include "core/record/races.hpp"
#include "layers/volume.hpp"
#include "tests/context/programs.hpp"
#include "tests/layers/hosts.hpp"
#include "tests/support/refusal.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

namespace shardmark {
namespace {

using test::ContextCase;

std::vector<Recording> record_all(const ContextCase& c, Phase phase) {
  std::vector<Recording> recordings;
  for (int rank = 0; rank < c.ranks(); ++rank)
    recordings.push_back(record_program(c.on(rank), phase, 1));
  return recordings;
}

/// Every kind on every block and mask; with TP, SP and overlap on the whole block.
std::vector<ContextCase> recorded_cases() {
  std::vector<ContextCase> cases;
  for (const BlockKind block : {BlockKind::attention_core, BlockKind::attention, BlockKind::block})
    for (const ContextCase& c : test::all_kinds(block))
      for (const std::string_view mask : {"full", "causal", "window", "packed"}) {
        cases.push_back(c);
        test::set_mask(cases.back(), mask);
        if (block != BlockKind::block) test::set_overlap(cases.back());
      }
  for (const BlockKind block : {BlockKind::block, BlockKind::mlp, BlockKind::linear_column,
                                BlockKind::linear_row, BlockKind::attention_core})
    for (const ContextCase& c : test::all_kinds_with_tp(block)) cases.push_back(c);
  return cases;
}

TEST(ContextRecords, AreFreeOfRacesMatchedAndFinish) {
  for (const ContextCase& c : recorded_cases()) {
    const std::vector<Recording> recordings = record_all(c, Phase::step);
    std::vector<std::vector<OpRecord>> ops;
    for (const Recording& recording : recordings) {
      EXPECT_THAT(find_races(recording.ops), testing::IsEmpty()) << c;
      ops.push_back(recording.ops);
    }
    EXPECT_THAT(check_matching(ops), testing::IsEmpty()) << c;
    EXPECT_THAT(find_deadlock(ops), testing::IsEmpty()) << c;
  }
}

TEST(ContextRecords, CommunicationEqualsTheFormula) {
  for (const ContextCase& c : recorded_cases())
    for (const Phase phase : {Phase::forward, Phase::backward, Phase::step})
      for (int rank = 0; rank < c.ranks(); ++rank)
        EXPECT_NEAR(record_program(c.on(rank), phase, 1).bytes_wire,
                    total_bytes(communication_volume(c.on(rank), phase)), 0.5)
            << c << " phase " << name_of(phase) << " rank " << rank;
}

/// Chunks of query heads must not send a KV head round the ring more than once.
TEST(ContextRecords, OverlapOfAHybridSendsNoMoreThanTheFormula) {
  int num_chunked = 0;
  for (const auto& [cp, ulysses] :
       {std::pair{4, 2}, {4, 4}, {8, 2}, {8, 4}, {3, 3}, {6, 2}, {6, 3}})
    for (const std::int64_t kv_per_member : {8, 4, 2, 0})  // MHA, GQA, and MQA
      for (const bool outer : {false, true})
        for (const Phase phase : {Phase::forward, Phase::backward, Phase::step}) {
          ContextCase c = test::context_case(BlockKind::attention_core, ContextKind::hybrid,
                                             TokenOrder::zigzag, cp);
          c.config.shape.heads = std::int64_t{8} * ulysses;
          c.config.shape.kv_heads = std::max<std::int64_t>(1, kv_per_member * ulysses);
          ContextParallel& context = c.config.parallel.context;
          context.ulysses = ulysses;
          context.ulysses_outer = outer;
          c.config.parallel.overlap = true;
          context.head_chunks = 4;
          const int chunks =
              context.usable_head_chunks(c.config.shape.heads, c.config.shape.kv_heads);
          if (cp > ulysses) {
            EXPECT_EQ(chunks, std::clamp<std::int64_t>(kv_per_member, 1, 4)) << c;
          }
          if (chunks > 1) ++num_chunked;
          for (int rank = 0; rank < cp; ++rank)
            EXPECT_EQ(record_program(c.on(rank), phase, 1).bytes_wire,
                      total_bytes(communication_volume(c.on(rank), phase)))
                << c << " phase " << name_of(phase) << " rank " << rank;
        }
  EXPECT_GT(num_chunked, 100);
}

/// As on tp ranks: the model's FLOPs plus the recomputed attention, masked pairs not counted.
TEST(ContextRecords, FlopsEqualTheFormula) {
  for (const ContextCase& c : recorded_cases()) {
    double executed = 0;
    for (const Recording& recording : record_all(c, Phase::step)) executed += recording.flops;
    const ModelShape& shape = c.config.shape;
    const std::vector<std::int64_t> starts = shape.starts();
    const Places all = Places::all(shape.seq);
    const double pairs = has_attention(c.config.block)
                             ? visible_pairs({shape.causal, shape.window, starts}, all, all)
                             : 0;
    const double core = 4.0 * static_cast<double>(shape.batch * shape.query_width()) * pairs;
    EXPECT_NEAR(executed / (model_flops(c.on(0), Phase::step).causal + 0.5 * core), 1, 1e-12) << c;
  }
}

/// One step between neighbours on the compute lane: somebody who writes the block's input and
/// output gradient and somebody who reads every gradient.
std::vector<OpRecord> step_between_neighbours(const LayerConfig& config, Recording& keep_alive) {
  OpList list;
  keep_alive.backend = std::make_unique<RecordBackend>();
  keep_alive.rank = std::make_unique<Rank>(
      config.parallel.world_rank(),
      Mesh{{.cp = config.parallel.context.cp.size, .tp = config.parallel.tp.size}},
      *keep_alive.backend, &list);
  Rank& rank = *keep_alive.rank;
  keep_alive.program = make_program(rank, config);
  for (const NamedTensor& named : keep_alive.program->tensors())
    if (named.role == Role::input) fill(rank, named.tensor, 0);
  run_phase(*keep_alive.program, Phase::step);
  for (const NamedTensor& named : keep_alive.program->tensors()) {
    if (named.role != Role::gradient) continue;
    const Buffer reader = rank.allocate(named.tensor.shape, DType::f32, Category::activation);
    copy(rank, named.tensor, reader.tensor());
  }
  rank.set_sink(nullptr);
  return list.ops;
}

TEST(ContextRecords, EveryFenceAroundTheWeightGradientsIsNeeded) {
  int num_deleted = 0;
  for (const BlockKind block : {BlockKind::block, BlockKind::mlp})
    for (const ContextCase& c : test::all_kinds_with_tp(block)) {
      Recording keep_alive;
      const std::vector<OpRecord> ops = step_between_neighbours(c.on(1), keep_alive);
      EXPECT_THAT(find_races(ops), testing::IsEmpty()) << c;
      for (std::size_t position = 0; position < ops.size(); ++position) {
        if (kind_of(ops[position].op) != OpKind::ordering) continue;
        if (ops[position].path->find("weight_gradients") == std::string::npos) continue;
        ++num_deleted;
        EXPECT_THAT(find_races(without_op(ops, position)), testing::Not(testing::IsEmpty()))
            << c << ": nobody misses " << to_string(ops[position]);
      }
    }
  EXPECT_GT(num_deleted, 80);
}

/// The table of METRICS 1.3, full attention in bf16.
TEST(ContextVolume, OfAnAttentionCoreIsTheTableOfTheLiterature) {
  for (const int cp : {2, 4, 8})
    for (const std::int64_t kv_heads : {8, 2}) {
      const double P = cp;
      const double bs = 2.0 * 48, h = 64, h_kv = static_cast<double>(kv_heads) * 8, e = 2;
      const auto volume = [&](ContextKind kind, Phase phase) {
        ContextCase c = test::context_case(BlockKind::attention_core, kind, TokenOrder::zigzag, cp);
        c.config.shape.kv_heads = kv_heads;
        c.config.dtype = DType::bf16;
        test::set_mask(c, "full");
        return total_bytes(communication_volume(c.on(0), phase));
      };
      const double kv = 2 * (P - 1) / P * bs * h_kv * e, dkv = 2 * (P - 1) / P * bs * h_kv * 4;
      EXPECT_DOUBLE_EQ(volume(ContextKind::ring, Phase::forward), kv);
      EXPECT_DOUBLE_EQ(volume(ContextKind::ring, Phase::backward), kv + dkv);
      EXPECT_DOUBLE_EQ(volume(ContextKind::all_gather, Phase::forward), kv);
      EXPECT_DOUBLE_EQ(volume(ContextKind::all_gather, Phase::backward), dkv);
      const double sent = std::max(h_kv, P * 8);
      for (const Phase phase : {Phase::forward, Phase::backward})
        EXPECT_DOUBLE_EQ(volume(ContextKind::ulysses, phase),
                         (P - 1) / P * bs / P * (2 * h + 2 * sent) * e);
    }
}

TEST(ContextVolume, SaysWhatItCounts) {
  ContextCase c =
      test::context_case(BlockKind::block, ContextKind::ring, TokenOrder::contiguous, 4);
  const auto lines = communication_volume(c.on(2), Phase::step);
  const auto counted = [](const VolumeLine& line) {
    return line.formula.starts_with("counted from the plan");
  };
  EXPECT_EQ(std::ranges::count_if(lines, counted), 2);
  c.config.parallel.context.order = TokenOrder::zigzag;
  EXPECT_EQ(std::ranges::count_if(communication_volume(c.on(2), Phase::step), counted), 0);
}

/// Each element of a global tensor is held: once per rank that says so, and by as many ranks for
/// every row.
TEST(ContextTensors, TileTheWholeSequence) {
  for (const BlockKind block : {BlockKind::attention_core, BlockKind::linear_column,
                                BlockKind::linear_row, BlockKind::block})
    for (ContextCase c : test::all_kinds_with_tp(block)) {
      c.config.shape.seq = 32;
      c.config.shape.head_dim = 2;
      c.config.shape.hidden = 32;
      c.config.shape.ffn = 32;
      std::map<std::string, std::vector<int>> holders;
      for (int rank = 0; rank < c.ranks(); ++rank) {
        const Recording recording = record_program(c.on(rank), Phase::forward, 1);
        for (const NamedTensor& named : recording.program->tensors()) {
          if (!named.per_token) continue;
          const std::int64_t tokens = c.config.shape.tokens();
          for (const ShardPart& part : named.parts) {
            ASSERT_EQ(part.global_shape[0], tokens) << c << ' ' << named.name;
            std::vector<int>& held = holders[part.of];
            held.resize(static_cast<std::size_t>(tokens * part.global_shape.cols()));
            const bool columns = named.dim == 1;
            const std::int64_t rows = columns ? named.tensor.rows() : part.count;
            const std::int64_t cols = columns ? part.count : named.tensor.cols();
            for (std::int64_t row = 0; row < rows; ++row)
              for (std::int64_t col = 0; col < cols; ++col) {
                const std::int64_t to_row =
                    columns ? named.global_row(row) : part.global_first + row;
                const std::int64_t to_col = columns ? part.global_first + col : col;
                ++held[static_cast<std::size_t>(to_row * part.global_shape.cols() + to_col)];
              }
          }
        }
      }
      EXPECT_GE(holders.size(), 3U);
      for (const auto& [name, held] : holders)
        EXPECT_THAT(held, testing::Each(held.front())) << c << ' ' << name;
    }
}

std::string refusal_of(const ContextCase& c) {
  return test::refusal([&] { check_divisible(c.on(0)); });
}

/// The message for a block split like this after `change` of its config.
template <class Change>
std::string message_with(ContextKind kind, TokenOrder order, int cp, int tp, const Change& change) {
  ContextCase c = test::context_case(BlockKind::block, kind, order, cp, tp);
  change(c.config);
  return refusal_of(c);
}

TEST(ContextInput, ErrorsOfSequencesNameTheValueTheRuleAndWhatWorks) {
  const auto with_seq = [](TokenOrder order, std::int64_t seq, bool sp) {
    return message_with(ContextKind::ring, order, 4, 2, [&](LayerConfig& config) {
      config.shape.seq = seq;
      config.parallel.sequence_parallel = sp;
    });
  };
  EXPECT_EQ(with_seq(TokenOrder::contiguous, 50, false),
            "seq 50 does not split over cp 4 in contiguous order: it must be a multiple of 4; try "
            "48 or 52");
  EXPECT_EQ(with_seq(TokenOrder::striped, 50, false),
            "seq 50 does not split over cp 4 in striped order: it must be a multiple of 4; try 48 "
            "or 52");
  EXPECT_EQ(with_seq(TokenOrder::zigzag, 52, false),
            "seq 52 does not split over cp 4 in zigzag order: it must be a multiple of 8; try 48 "
            "or 56");
  EXPECT_EQ(with_seq(TokenOrder::contiguous, 52, true),
            "seq 52 does not split over cp 4 in contiguous order with SP: it must be a multiple of "
            "8; try 48 or 56");
  EXPECT_EQ(with_seq(TokenOrder::zigzag, 5, false),
            "seq 5 does not split over cp 4 in zigzag order: it must be a multiple of 8; try 8");
  EXPECT_EQ(with_seq(TokenOrder::zigzag, 56, true), "accepted");
}

TEST(ContextInput, ErrorsOfHeadsDegreesAndMasksNameTheValueTheRuleAndWhatWorks) {
  const auto with_heads = [](std::int64_t heads, std::int64_t kv_heads, int cp, int tp) {
    return message_with(ContextKind::ulysses, TokenOrder::contiguous, cp, tp,
                        [&](LayerConfig& config) {
                          config.shape.heads = heads;
                          config.shape.kv_heads = kv_heads;
                        });
  };
  EXPECT_EQ(with_heads(8, 8, 16, 1),
            "heads 8 is not divisible by the Ulysses degree 16; try heads 16 or the Ulysses degree "
            "8 at most");
  EXPECT_EQ(
      with_heads(12, 6, 4, 1),
      "kv_heads 6 neither divides nor is divisible by the Ulysses degree 4; try kv_heads 4 or "
      "12, or the Ulysses degree 3 or 6");
  EXPECT_EQ(with_heads(60, 20, 3, 1),
            "kv_heads 20 neither divides nor is divisible by the Ulysses degree 3; try kv_heads 15 "
            "or 30, or the Ulysses degree 2 or 4");
  EXPECT_EQ(with_heads(12, 12, 4, 2),
            "heads per tp rank 6 is not divisible by the Ulysses degree 4; try 4 or 8");
  EXPECT_EQ(with_heads(8, 1, 4, 2), "accepted");
  EXPECT_EQ(with_heads(8, 3, 2, 1), "heads 8 is not divisible by kv_heads 3; try kv_heads 2 or 4");

  const auto with_degree = [](int ulysses) {
    return message_with(ContextKind::hybrid, TokenOrder::zigzag, 4, 1,
                        [&](LayerConfig& config) { config.parallel.context.ulysses = ulysses; });
  };
  EXPECT_EQ(with_degree(3), "ulysses 3 does not divide cp 4; try 2");
  EXPECT_EQ(with_degree(0), "ulysses 0 does not divide cp 4; try 1");
  EXPECT_EQ(with_degree(2), "accepted");
  EXPECT_EQ(message_with(ContextKind::hybrid, TokenOrder::zigzag, 6, 1,
                         [](LayerConfig& config) {
                           config.shape.heads = 12;
                           config.shape.kv_heads = 4;
                           config.parallel.context.ulysses = 3;
                         }),
            "kv_heads 4 neither divides nor is divisible by the Ulysses degree 3; try kv_heads 3 "
            "or 6, or the Ulysses degree 2");

  const auto with_masks = [](std::int64_t window, std::vector<std::int64_t> seqlens) {
    return message_with(ContextKind::ring, TokenOrder::striped, 1, 1, [&](LayerConfig& config) {
      config.shape.window = window;
      config.shape.seqlens = std::move(seqlens);
    });
  };
  EXPECT_EQ(with_masks(-1, {}), "window is -1; it must be at least 1");
  EXPECT_EQ(with_masks(0, {20, 20}), "seqlens add up to 40, not to seq 48; try seq 40");
  EXPECT_EQ(with_masks(0, {48, 0}), "a packed sequence is 0; it must be at least 1");
  EXPECT_EQ(with_masks(7, {20, 28}), "accepted");

  ContextCase c = test::context_case(BlockKind::model, ContextKind::ring, TokenOrder::zigzag, 2);
  EXPECT_THAT(refusal_of(c), testing::HasSubstr("a model is not offered with cp 2"));
  c = test::context_case(BlockKind::attention_core, ContextKind::ring, TokenOrder::zigzag, 2, 2);
  c.config.shape.kv_heads = 1;
  EXPECT_EQ(refusal_of(c), "kv_heads 1 is not divisible by tp 2; try kv_heads 2 or tp 1 at most");
}

TEST(ContextReduced, KeepsTheSplitOrderAndMasks) {
  for (const BlockKind block : {BlockKind::attention_core, BlockKind::block})
    for (ContextCase c : test::all_kinds_with_tp(block))
      for (const std::string_view mask : {"full", "window", "packed"}) {
        ModelShape& shape = c.config.shape;
        shape.seq = 1 << 20;
        shape.heads = 64;
        shape.kv_heads = 8;
        shape.head_dim = 128;
        test::set_mask(c, mask);
        if (shape.window > 0) shape.window = 1 << 18;
        if (!shape.seqlens.empty()) shape.seqlens = {1, 1 << 19, (1 << 19) - 1};
        const LayerConfig small = reduced_config(c.on(1));
        EXPECT_NO_THROW(check_divisible(small)) << c;
        EXPECT_LE(small.shape.seq, 8 * 2 * 8 * 2) << c;
        EXPECT_LE(small.shape.heads, 16) << c;
        EXPECT_LT(small.shape.kv_heads, small.shape.heads) << c;
        EXPECT_EQ(small.parallel.num_ranks(), c.ranks());
        EXPECT_EQ(small.parallel.context.order, c.config.parallel.context.order);
        EXPECT_EQ(small.shape.window, shape.window > 0 ? small.shape.seq / 4 : 0) << c;
        // The sequence of one token has vanished.
        EXPECT_EQ(small.shape.seqlens.size(), shape.seqlens.empty() ? 0U : 2U) << c;
      }
}

/// Checks the case on all its ranks against one rank in f64.
void expect_equal_to_serial(const ContextCase& c) {
  for (const CheckResult& result : test::check_on_threads(c)) {
    EXPECT_TRUE(result.pass) << c << ": " << result.problem;
    EXPECT_GT(result.max_abs_err, 0) << c << " is compared with itself";
  }
}

TEST(ContextValues, OfAttentionEqualOneRank) {
  for (const int cp : {1, 2, 3, 4, 8})
    for (const ContextCase& c : test::all_variants(BlockKind::attention_core, cp)) {
      if (cp == 8 && c.mask != "causal") continue;
      expect_equal_to_serial(c);
    }
}

/// Bitwise on exact data first: `attention` has it.
TEST(ContextValues, OfBlocksWithTpEqualOneRank) {
  for (const BlockKind block : {BlockKind::attention, BlockKind::block, BlockKind::mlp})
    for (ContextCase c : test::all_kinds_with_tp(block)) {
      expect_equal_to_serial(c);
      c.config.shape.positions = Positions::rotary;
      c.config.shape.kv_heads = 2;
      c.config.shape.mlp = MlpKind::swiglu;
      test::set_mask(c, "packed");
      c.config.dtype = DType::bf16;
      expect_equal_to_serial(c);
    }
}

}  // namespace
}  // namespace shardmark
