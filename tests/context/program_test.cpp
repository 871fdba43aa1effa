// Blocks on a cp group: their op lists are clean and cost what the formulas say, every rank holds
// the tokens that it names, and values equal those of one rank.

#include "core/cpu/backend.hpp"
#include "core/cpu/transport_threads.hpp"
#include "core/launch.hpp"
#include "core/record/deadlock.hpp"
#include "core/record/matching.hpp"
#include "core/record/mutate.hpp"
#include "core/record/races.hpp"
#include "core/reference/backend.hpp"
#include "layers/check.hpp"
#include "layers/volume.hpp"
#include "tests/context/programs.hpp"

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

/// What one rank needs to run.
struct Host {
  explicit Host(Transport& transport) : cpu{transport, arena, kernels} {}
  Arena arena{std::int64_t{1} << 28U};
  Kernels kernels{1, arena};
  CpuBackend cpu;
  ReferenceBackend unused;  ///< the serial side is f64 by itself
};

/// Checks the case on all its ranks against one rank in f64.
void expect_equal_to_serial(const ContextCase& c) {
  std::vector<CheckResult> results(static_cast<std::size_t>(c.ranks()));
  run_threads(c.ranks(), [&](Transport& transport) {
    transport.set_wait_policy({.yield = true, .timeout_s = 30});
    Host host{transport};
    const LayerConfig config = c.on(transport.rank());
    connect_all(transport, record_program(config, Phase::step, 1).ops);
    Rank rank{transport.rank(), c.mesh(), host.cpu};
    results[static_cast<std::size_t>(transport.rank())] =
        check_against_serial(rank, config, host.unused, 7);
  });
  for (const CheckResult& result : results) {
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
