#include "core/adaptors.hpp"

#include "core/error.hpp"
#include "core/functions.hpp"

#include <gmock/gmock.h>
#include <sys/time.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>

namespace shardmark::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Real memory; knows how to fill, in f32, and remembers the other ops it was given.
class FakeBackend final : public Backend {
 public:
  std::byte* allocate(std::int64_t bytes, Category) override {
    auto memory = std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes));
    std::byte* data = memory.get();
    memory_.emplace(data, std::move(memory));
    return data;
  }
  void deallocate(std::byte* data, std::int64_t) noexcept override { memory_.erase(data); }
  void execute(const OpRecord& record) override {
    ops.push_back(record);
    const auto* fill = std::get_if<Fill>(&record.op);
    if (fill == nullptr || fill->x.dtype != DType::f32) return;
    for (std::int64_t row = 0; row < fill->x.rows(); ++row)
      for (std::int64_t column = 0; column < fill->x.cols(); ++column)
        fill->x.as<float>()[row * fill->x.row_stride + column] = fill->value;
  }
  void synchronize() override { ++num_synchronized; }
  void write(const Tensor& to, const void* from) override {
    ASSERT_TRUE(to.contiguous());
    std::memcpy(to.data, from, static_cast<std::size_t>(to.bytes()));
  }
  void read(const Tensor& from, void* to) override {
    ASSERT_TRUE(from.contiguous());
    std::memcpy(to, from.data, static_cast<std::size_t>(from.bytes()));
  }
  [[nodiscard]] std::size_t num_buffers() const { return memory_.size(); }

  std::vector<OpRecord> ops;
  int num_synchronized{0};

 private:
  std::map<std::byte*, std::unique_ptr<std::byte[]>> memory_;
};

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();
const Mesh two_ranks{{.tp = 2}};

std::vector<std::string_view> names(const std::vector<OpRecord>& ops) {
  std::vector<std::string_view> result;
  for (const OpRecord& record : ops) result.push_back(name_of(record.op));
  return result;
}

template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Adaptors, ForwardMemoryAndData) {
  FakeBackend fake;
  FilterBackend filter{fake, OpKind::compute};
  NanCheckBackend check{filter, 0};
  FaultBackend outer{check, 0, Fault{.rank = 1}};
  Rank rank{0, two_ranks, outer};
  {
    const Buffer x = rank.allocate({2}, DType::f32, Category::weight);
    EXPECT_EQ(fake.num_buffers(), 1U);
    const float values[2]{3, 4};
    outer.write(x.tensor(), values);
    float back[2]{};
    outer.read(x.tensor(), back);
    EXPECT_THAT(back, ElementsAre(3, 4));
    rank.synchronize();
    EXPECT_EQ(fake.num_synchronized, 1);
  }
  EXPECT_EQ(fake.num_buffers(), 0U);
}

void compute_and_communicate(Rank& rank) {
  const Buffer x = rank.allocate({2}, DType::f32, Category::weight);
  fill(rank, x.tensor(), 1);
  rank.order(Lane::compute, Lane::tp);
  all_reduce(rank, x.tensor(), rank.group(Axis::tp), Lane::tp);
}

TEST(FilterBackend, KeepsOneKindAndTheOrder) {
  const auto kept = [](std::optional<OpKind> kind) {
    FakeBackend fake;
    FilterBackend filter{fake, kind};
    Rank rank{0, two_ranks, filter};
    compute_and_communicate(rank);
    return names(fake.ops);
  };
  EXPECT_THAT(kept(OpKind::compute), ElementsAre("fill", "signal", "await"));
  EXPECT_THAT(kept(OpKind::communication), ElementsAre("signal", "await", "all_reduce"));
  EXPECT_THAT(kept(std::nullopt), ElementsAre("fill", "signal", "await", "all_reduce"));
}

struct NanChecked {
  FakeBackend fake;
  NanCheckBackend check{fake, 1};
  Rank rank{1, two_ranks, check};
};

TEST(NanCheckBackend, AcceptsNumbersAndInfinity) {
  NanChecked checked;
  const Buffer x = checked.rank.allocate({2, 3}, DType::f32, Category::weight);
  fill(checked.rank, x.tensor(), 1);
  fill(checked.rank, x.tensor(), -infinity);
  EXPECT_EQ(checked.fake.num_synchronized, 2);
}

TEST(NanCheckBackend, NamesRankPathOpAndElement) {
  NanChecked checked;
  const Buffer x = checked.rank.allocate({2, 2, 3}, DType::f32, Category::weight);
  fill(checked.rank, x.tensor(), 1);
  const auto scope = checked.rank.scope("mlp");
  const Tensor last = x.tensor().reshape({4, 3}).row_block(3, 1).column_block(2, 1);
  checked.fake.write(last, &nan);
  EXPECT_THAT(error_of([&] {
                all_reduce(checked.rank, x.tensor(), checked.rank.group(Axis::tp), Lane::tp);
              }),
              AllOf(HasSubstr("rank 1: #1 mlp all_reduce wrote NaN to output 0 (2x2x3 f32)"),
                    HasSubstr("row 3, column 2")));
}

TEST(NanCheckBackend, LooksOnlyAtTheViewThatWasWritten) {
  NanChecked checked;
  const Buffer x = checked.rank.allocate({2, 4}, DType::f32, Category::weight);
  const std::vector<float> values{0, 0, nan, nan, 0, 0, nan, nan};
  checked.fake.write(x.tensor(), values.data());
  fill(checked.rank, x.tensor().column_block(0, 2), 1);
  EXPECT_THAT(error_of([&] { fill(checked.rank, x.tensor().column_block(1, 2), nan); }),
              HasSubstr("row 0, column 0"));
}

TEST(NanCheckBackend, KnowsBf16AndIgnoresIds) {
  NanChecked checked;
  const Buffer x = checked.rank.allocate({3}, DType::bf16, Category::weight);
  const std::uint16_t numbers[3]{0x3F80, 0x7F80, 0xFF80};  // 1, inf, -inf
  checked.fake.write(x.tensor(), numbers);
  fill(checked.rank, x.tensor(), 0);
  const std::uint16_t with_nan[3]{0x3F80, 0xFFC0, 0};
  checked.fake.write(x.tensor(), with_nan);
  EXPECT_THAT(error_of([&] { fill(checked.rank, x.tensor(), 0); }), HasSubstr("column 1"));

  const Buffer ids = checked.rank.allocate({1}, DType::i32, Category::activation);
  const std::int32_t all_bits = -1;
  checked.fake.write(ids.tensor(), &all_bits);
  EXPECT_THAT(error_of([&] { fill(checked.rank, ids.tensor(), 0); }), IsEmpty());
}

TEST(Fault, SpecsAreRead) {
  const Fault hang = parse_fault("hang:rank=1:op=40");
  EXPECT_EQ(hang.kind, Fault::Kind::hang);
  EXPECT_EQ(hang.rank, 1);
  EXPECT_EQ(hang.op, 40U);
  const Fault exit = parse_fault("exit:3:rank=0:op=7");
  EXPECT_EQ(exit.kind, Fault::Kind::exit);
  EXPECT_EQ(exit.exit_code, 3);
  EXPECT_EQ(parse_fault("kill:rank=0:op=0").kind, Fault::Kind::kill);
  EXPECT_EQ(parse_fault("nan:rank=0:op=0").kind, Fault::Kind::nan);
  EXPECT_EQ(parse_fault("throw:rank=0:op=0").kind, Fault::Kind::error);
  EXPECT_EQ(parse_fault("corrupt:rank=0:op=0").kind, Fault::Kind::corrupt);
  const Fault slow = parse_fault("slow:250:rank=2:op=9");
  EXPECT_EQ(slow.kind, Fault::Kind::slow);
  EXPECT_EQ(slow.delay_us, 250);
  EXPECT_EQ(slow.rank, 2);
  EXPECT_EQ(slow.op, 9U);
}

TEST(Fault, BadSpecsAreInputErrors) {
  for (const char* spec :
       {"", "explode:rank=0:op=0", "hang", "hang:rank=1", "hang:op=40:rank=1", "hang:rank=-1:op=4",
        "hang:rank=1:op=", "hang:rank=1:op=4x", "hang:rank=1:op=4:more", "exit:rank=1:op=4",
        "exit:256:rank=1:op=4", "slow:rank=1:op=4", "slow:1000001:rank=1:op=4",
        "hang:rank=99999999999:op=1", "hang:rank=1:op=99999999999999999999"})
    EXPECT_THROW((void)parse_fault(spec), InputError) << spec;
  EXPECT_THAT(error_of([] { (void)parse_fault("hang:rank=x:op=4"); }),
              AllOf(HasSubstr("'rank=x' is not rank=NUMBER"), HasSubstr("hang:rank=1:op=40")));
}

/// Three fills of one tensor, ops 2, 5 and 8, under a fault; returns its first and last element.
std::vector<float> fill_three_times(const std::string& spec, int rank_id = 1) {
  FakeBackend fake;
  FaultBackend backend{fake, rank_id, parse_fault(spec)};
  Rank rank{rank_id, two_ranks, backend};
  const Buffer x = rank.allocate({2, 3}, DType::f32, Category::weight);
  for (int i = 0; i < 3; ++i) {
    rank.await(rank.signal(Lane::compute), Lane::tp);
    fill(rank, x.tensor(), static_cast<float>(i));
  }
  const float* values = x.tensor().as<float>();
  return {values[0], values[5]};
}

TEST(FaultBackend, NanHitsTheFirstElementOnce) {
  EXPECT_THAT(fill_three_times("nan:rank=1:op=2"), ElementsAre(2, 2));
  EXPECT_THAT(fill_three_times("nan:rank=1:op=6"), ElementsAre(testing::IsNan(), 2));
  EXPECT_THAT(fill_three_times("nan:rank=1:op=8"), ElementsAre(testing::IsNan(), 2));
  EXPECT_THAT(fill_three_times("nan:rank=1:op=9"), ElementsAre(2, 2));
}

TEST(FaultBackend, SlowDelaysTheOpsOfOneRankAndChangesNothing) {
  const auto time_of = [](const std::string& spec) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(fill_three_times(spec), ElementsAre(2, 2));
    return std::chrono::steady_clock::now() - begin;
  };
  // Of nine ops the last six.
  EXPECT_GE(time_of("slow:2000:rank=1:op=3"), std::chrono::milliseconds{12});
  EXPECT_LT(time_of("slow:1000000:rank=0:op=0"), std::chrono::seconds{1}) << "another rank";
}

TEST(FaultBackend, NanIsFoundByTheCheck) {
  FakeBackend fake;
  FaultBackend fault{fake, 0, parse_fault("nan:rank=0:op=0")};
  NanCheckBackend check{fault, 0};
  Rank rank{0, two_ranks, check};
  const Buffer x = rank.allocate({4}, DType::bf16, Category::weight);
  EXPECT_THAT(error_of([&] { fill(rank, x.tensor(), 1); }), HasSubstr("row 0, column 0"));
}

TEST(FaultBackend, CorruptChangesOneElementOfEveryDtype) {
  for (const DType dtype :
       {DType::f32, DType::bf16, DType::i32, DType::f64, DType::f16, DType::i8}) {
    FakeBackend fake;
    FaultBackend fault{fake, 0, parse_fault("corrupt:rank=0:op=1")};
    Rank rank{0, two_ranks, fault};
    const Buffer x = rank.allocate({2, 5}, dtype, Category::weight);
    const auto size = static_cast<std::size_t>(x.tensor().bytes());
    std::memset(x.tensor().data, 0, size);
    rank.await(rank.signal(Lane::compute), Lane::tp);
    combine(rank, x.tensor(), x.tensor(), Reduction::sum);
    std::vector<std::size_t> changed;
    for (std::size_t i = 0; i < size; ++i)
      if (x.tensor().data[i] != std::byte{0}) changed.push_back(i);
    const auto element = static_cast<std::size_t>(size_of(dtype));
    EXPECT_THAT(changed, ElementsAre(7 * element)) << name_of(dtype);
  }
}

TEST(FaultBackend, ThrowNamesTheOp) {
  EXPECT_THAT(error_of([] { fill_three_times("throw:rank=1:op=5"); }),
              HasSubstr("fault injected at #5 - fill of rank 1"));
}

TEST(FaultBackend, LeavesOtherRanksAlone) {
  for (const char* spec : {"exit:3:rank=0:op=0", "kill:rank=0:op=0", "hang:rank=0:op=0",
                           "nan:rank=0:op=0", "throw:rank=0:op=0", "corrupt:rank=0:op=0"})
    EXPECT_THAT(fill_three_times(spec), ElementsAre(2, 2)) << spec;
}

using FaultBackendDeathTest = testing::Test;
TEST(FaultBackendDeathTest, ExitKillAndHang) {
  EXPECT_EXIT(fill_three_times("exit:3:rank=1:op=4"), testing::ExitedWithCode(3), "");
  EXPECT_EXIT(fill_three_times("kill:rank=1:op=4"), testing::KilledBySignal(SIGKILL), "");
  const auto hang = [] {
    const itimerval soon{{0, 0}, {0, 50'000}};
    setitimer(ITIMER_REAL, &soon, nullptr);
    fill_three_times("hang:rank=1:op=4");
  };
  EXPECT_EXIT(hang(), testing::KilledBySignal(SIGALRM), "");
}

}  // namespace
}  // namespace shardmark::test
