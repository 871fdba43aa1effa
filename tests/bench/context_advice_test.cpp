#include "bench/context/advice.hpp"
#include "bench/context/sweep.hpp"
#include "bench/harness/work.hpp"
#include "core/functions.hpp"
#include "core/record/backend.hpp"

#include <gmock/gmock.h>

#include <sstream>

namespace shardmark::bench::context {
namespace {

using testing::HasSubstr;

// The example of the project's METRICS: s 128k, h 4096, P 8, bf16.
LayerConfig long_sequence(std::int64_t kv_heads) {
  LayerConfig config;
  config.block = BlockKind::attention_core;
  config.dtype = DType::bf16;
  config.shape.heads = 32;
  config.shape.kv_heads = kv_heads;
  config.shape.seq = 131072;
  config.shape.causal = false;
  config.parallel.context.cp.size = 8;
  return config;
}

TEST(Formulas, VolumesAreThoseOfTheExample) {
  const LinkRate link{0, 100};
  const Formulas mha = formulas_of(long_sequence(32), link, link, 100, 100);
  EXPECT_NEAR(mha.ring_bytes / 1e6, 1879, 0.5);
  EXPECT_NEAR(mha.ulysses_bytes / 1e6, 470, 0.5);
  EXPECT_DOUBLE_EQ(mha.equal_cp, 2);
  const Formulas gqa = formulas_of(long_sequence(8), link, link, 100, 100);
  EXPECT_NEAR(gqa.ring_bytes / 1e6, 470, 0.5);
  EXPECT_NEAR(gqa.ulysses_bytes / 1e6, 294, 0.5);
  EXPECT_DOUBLE_EQ(gqa.equal_cp, 5);
  EXPECT_EQ(gqa.most_ulysses, 32);
  EXPECT_EQ(gqa.kv_limit, 8);
}

// Full attention, MHA, bf16, no latency: blocks of F / W tokens; divided by h / hkv for GQA,
// doubled for balanced causal.
TEST(Formulas, TheRingHidesFromBlocksOfComputeOverBandwidth) {
  constexpr double tflops = 600, bandwidth_GBps = 50;
  const LinkRate link{0, bandwidth_GBps};
  const auto hiding_block = [&](const LayerConfig& config) {
    return formulas_of(config, link, link, tflops, tflops).hiding_seq_forward / 8;
  };
  constexpr double tokens = tflops * 1e12 / (bandwidth_GBps * 1e9);
  EXPECT_DOUBLE_EQ(hiding_block(long_sequence(32)), tokens);
  EXPECT_DOUBLE_EQ(hiding_block(long_sequence(8)), tokens / 4);
  LayerConfig causal = long_sequence(32);
  causal.shape.causal = true;
  EXPECT_DOUBLE_EQ(hiding_block(causal), 2 * tokens);
}

TEST(Formulas, LatencyMovesTheBreakEven) {
  // Eight ranks: 7 messages of the ring against 2 all-to-alls; per token the ring moves 4 times as
  // much, so it takes longer at any length unless its latency is the lower one.
  const Formulas equal = formulas_of(long_sequence(32), {10, 50}, {10, 50}, 1, 1);
  EXPECT_FALSE(equal.equal_seq.has_value());
  EXPECT_GT(equal.ring_us, equal.ulysses_us);
  const Formulas slow = formulas_of(long_sequence(32), {10, 50}, {1000, 50}, 1, 1);
  ASSERT_TRUE(slow.equal_seq.has_value());
  LayerConfig there = long_sequence(32);
  there.shape.seq = static_cast<std::int64_t>(*slow.equal_seq);
  const Formulas at = formulas_of(there, {10, 50}, {1000, 50}, 1, 1);
  EXPECT_NEAR(at.ring_us / at.ulysses_us, 1, 1e-3);
}

/// Ops of one rank, recorded.
class Recorded {
 public:
  Recorded(int id, int size) : rank{id, Mesh{{.cp = size}}, backend_, &list_} {}
  std::vector<OpRecord> ops() const { return list_.ops; }

 private:
  RecordBackend backend_;
  OpList list_;

 public:
  Rank rank;
};

/// 1 GB/s and 5 us on every link, 1 GB/s of copies: a copy of 1000 bytes takes 2 us.
MachineRates simple_rates() {
  MachineRates rates;
  rates.memory_GBps = 1;
  for (const Exchange exchange : {Exchange::ring, Exchange::all_gather})
    rates.links[{exchange, 1, 3}] = {5, 1};
  return rates;
}

/// Three ranks: rank r copies r + 1 times 1000 bytes, then 1000 bytes go around the ring while
/// three more are copied, and everybody waits for the message.
TEST(Replay, AMessageStartsWhenBothEndsHaveComeAndHidesBehindCompute) {
  std::vector<std::vector<OpRecord>> ops;
  for (int id = 0; id < 3; ++id) {
    Recorded recorded{id, 3};
    Rank& rank = recorded.rank;
    const Buffer x = rank.allocate({250}, DType::f32, Category::workspace);
    const Buffer y = rank.allocate({250}, DType::f32, Category::workspace);
    const Buffer z = rank.allocate({250}, DType::f32, Category::workspace);
    for (int i = 0; i <= id; ++i) copy(rank, x.tensor(), y.tensor());
    rank.order(Lane::compute, Lane::cp);
    send_recv(rank, x.tensor(), (id + 1) % 3, z.tensor(), (id + 2) % 3, rank.group(Axis::cp),
              Lane::cp);
    for (int i = 0; i < 3; ++i) copy(rank, x.tensor(), y.tensor());
    rank.order(Lane::cp, Lane::compute);
    copy(rank, z.tensor(), y.tensor());
    ops.push_back(recorded.ops());
  }
  const Prediction prediction = replay(ops, simple_rates());
  // Rank 2 comes to the ring after 6 us; its message ends at 6 + 5 + 1 = 12, as its copies do.
  EXPECT_DOUBLE_EQ(prediction.time_us, 14);
  EXPECT_DOUBLE_EQ(prediction.compute_us, 14);
  EXPECT_DOUBLE_EQ(prediction.exchange_us, 6);
  EXPECT_DOUBLE_EQ(prediction.exposed_us(), 0);
}

TEST(Replay, ACollectiveWaitsForItsLastMember) {
  std::vector<std::vector<OpRecord>> ops;
  for (int id = 0; id < 3; ++id) {
    Recorded recorded{id, 3};
    Rank& rank = recorded.rank;
    const Buffer x = rank.allocate({250}, DType::f32, Category::workspace);
    const Buffer y = rank.allocate({750}, DType::f32, Category::workspace);
    if (id == 1) fill(rank, y.tensor(), 0);
    rank.order(Lane::compute, Lane::cp);
    all_gather(rank, x.tensor(), y.tensor(), rank.group(Axis::cp), Lane::cp);
    ops.push_back(recorded.ops());
  }
  // The fill writes 3000 bytes in 3 us; two thirds of 3000 bytes cross a link: 5 + 2 us.
  const Prediction prediction = replay(ops, simple_rates());
  EXPECT_DOUBLE_EQ(prediction.time_us, 10);
  EXPECT_DOUBLE_EQ(prediction.exposed_us(), 7);
}

MachineRates rates_for(int cp, double bandwidth_GBps, DType dtype = DType::f32) {
  MachineRates rates;
  rates.memory_GBps = 10;
  for (const Exchange exchange : {Exchange::ring, Exchange::all_to_all, Exchange::all_gather,
                                  Exchange::reduce_scatter, Exchange::all_reduce})
    rates.links[{exchange, 1, cp}] = {50, bandwidth_GBps};
  for (const bool backward : {false, true}) rates.attention_tflops[{dtype, 128, backward}] = 0.1;
  rates.matmul_tflops[dtype] = 0.12;
  return rates;
}

std::vector<Advice> advice_for(std::vector<std::string> arguments, int cp, double bandwidth_GBps) {
  arguments.insert(arguments.end(), {"--cp", std::to_string(cp)});
  const Sweep sweep = expand(parse_options(arguments), cp);
  return advise(sweep.cases, rates_for(cp, bandwidth_GBps));
}

ContextKind fastest(const Advice& advice) {
  return advice.predicted().config.layer.parallel.context.kind;
}

// Long: every block hides its exchange, and only Ulysses cannot hide all of it. Short, on a slow
// link: what counts is what is sent, and that is the least with Ulysses.
TEST(Advice, FollowsLengthAndHeads) {
  const auto long_one = advice_for({"--seq", "16k", "--phase", "fwd", "--kv-heads", "1"}, 4, 1.0);
  ASSERT_EQ(long_one.size(), 1U);
  EXPECT_NE(fastest(long_one.front()), ContextKind::ulysses);
  const auto short_one = advice_for({"--seq", "512", "--phase", "step"}, 4, 0.02);
  EXPECT_EQ(fastest(short_one.front()), ContextKind::ulysses);
}

TEST(Advice, StatesFormulasInputsAndWhatWasMeasured) {
  auto advice = advice_for({"--seq", "2k", "--heads", "8", "--kv-heads", "2"}, 2, 0.1);
  ASSERT_EQ(advice.size(), 1U);
  ASSERT_EQ(advice.front().candidates.size(), 3U);
  std::vector<Result> results(3);
  for (std::size_t i = 0; i < results.size(); ++i) {
    results[i].config = advice.front().candidates[i].config;
    results[i].time.p50 = 1000.0 * (1 + static_cast<double>(i));
  }
  add_measured(advice, std::span{results}.first(2));
  EXPECT_EQ(advice.front().measured(), nullptr) << "one was not measured";
  add_measured(advice, results);
  EXPECT_TRUE(advice.front().agrees());
  EXPECT_DOUBLE_EQ(advice.front().regret_pct(), 0);
  auto otherwise = advice;
  results.back().time.p50 = 800;  // the slowest by prediction is the fastest
  add_measured(otherwise, results);
  EXPECT_FALSE(otherwise.front().agrees());
  EXPECT_DOUBLE_EQ(otherwise.front().regret_pct(), 25);
  std::ostringstream out;
  print(out, rates_for(2, 0.1), advice);
  EXPECT_THAT(out.str(),
              testing::AllOf(HasSubstr("ring of 2 ranks: 50.0 us + bytes / 0.1 GB/s"),
                             HasSubstr("equal at P = (h+hkv)/hkv = 5.0"),
                             HasSubstr("at most heads / tp = 8 ranks; beyond kv-heads / tp = 2"),
                             HasSubstr("measured so in 1 of 1 cases")));
}

TEST(Advice, RatesThatCannotBeAreCalledUnreliable) {
  MachineRates rates = rates_for(3, 0.1);
  EXPECT_EQ(rates.doubts(), "");
  rates.links[{Exchange::ring, 1, 3}] = {1500, 11};
  EXPECT_EQ(rates.doubts(),
            "ring of 3 ranks seems faster than a copy; "
            "ring of 3 ranks takes above 1 ms to start within one host");
  rates.one_host = false;
  EXPECT_EQ(rates.doubts(), "");
  rates.oversubscribed = true;
  EXPECT_THAT(rates.doubts(), HasSubstr("more compute threads than cores"));
  const auto advice = advice_for({"--seq", "1536", "--heads", "6", "--phase", "fwd"}, 3, 0.1);
  std::ostringstream out;
  print(out, rates, advice);
  EXPECT_THAT(out.str(), HasSubstr("unreliable: more compute threads than cores"));
}

// P ranks, contiguous and causal: the last of P parts has (2P-1) of the P^2 halves of the pairs.
TEST(Work, TheCeilingOfContiguousCausalIsStructural) {
  for (const int cp : {2, 3, 4}) {
    const Sweep sweep = expand(
        parse_options({"--kind", "ring", "--order", "contiguous,zigzag", "--cp", std::to_string(cp),
                       "--phase", "fwd", "--seq", std::to_string(2400), "--heads", "1"}),
        cp);
    ASSERT_EQ(sweep.cases.size(), 2U);
    const auto ceiling = [&](const Case& config) {
      Result result;
      result.config = config;
      LayerConfig layer = config.layer;
      for (int rank = 0; rank < cp; ++rank) {
        layer.parallel = config.layer.parallel.at(0, rank);
        result.work.push_back(work_of(record_program(layer, config.phase, 1), layer));
      }
      return result.speedup_ceiling();
    };
    EXPECT_NEAR(ceiling(sweep.cases[0]), cp * cp / (2.0 * cp - 1), 2e-3) << "contiguous " << cp;
    EXPECT_NEAR(ceiling(sweep.cases[1]), cp, 2e-3) << "zigzag " << cp;
  }
}

TEST(Work, KeysAreCountedOnceWhereverTheyLie) {
  const auto kv_bytes = [](const std::string& kind, int cp) {
    const Sweep sweep =
        expand(parse_options({"--kind", kind, "--cp", std::to_string(cp), "--seq", "1536",
                              "--heads", "6", "--head-dim", "64", "--overlap", "off"}),
               cp);
    const LayerConfig& layer = sweep.cases.back().layer;
    return work_of(record_program(layer, Phase::step, 1), layer).kv_bytes;
  };
  constexpr double all = 2.0 * 1536 * 6 * 64 * 4;
  EXPECT_DOUBLE_EQ(kv_bytes("ulysses", 3), all / 3) << "all tokens of a third of the heads";
  EXPECT_GE(kv_bytes("all-gather", 3), all) << "all tokens of all heads";
  EXPECT_LE(kv_bytes("ring", 3), all) << "its own and two in transit";
}

}  // namespace
}  // namespace shardmark::bench::context
