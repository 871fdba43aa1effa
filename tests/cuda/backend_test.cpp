#include "core/cuda/backend.hpp"

#include "core/cpu/transport_threads.hpp"
#include "core/cuda/event_table.hpp"
#include "core/error.hpp"
#include "core/functions.hpp"
#include "core/reference/backend.hpp"
#include "tests/cuda/fake_device.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace shardmark::cuda {
namespace {

using testing::HasSubstr;

/// A rank that is alone in its world, on a device that runs streams in an order that the seed
/// picks.
struct Alone {
  explicit Alone(unsigned seed) : device{seed} {}
  FakeDevice device;
  ThreadWorld world{1};
  ThreadTransport transport{world, 0};
};

/// A program over three lanes: products on compute, copies aside, sums of both, buffers that come
/// and go. Whole numbers, so that every right order gives the same bits.
class Program {
 public:
  explicit Program(Backend& backend) : backend_{backend}, rank_{0, Mesh{{}}, backend} {}

  /// Without `ordered`, lanes do not wait for each other.
  std::vector<float> run(bool ordered) {
    constexpr std::int64_t n = 24;
    const auto order = [&](Lane lane, Lane waiting) {
      if (ordered) rank_.order(lane, waiting);
    };
    const Buffer x = make({n, n}), w = make({n, n}), sum = make({n, n});
    write(x, 1);
    write(w, 2);
    fill(rank_, sum.tensor(), 0);
    for (int step = 0; step < 4; ++step) {
      const Buffer product = make({n, n}), copied = make({n, n});
      matmul(rank_, x.tensor(), w.tensor(), product.tensor());
      order(Lane::compute, Lane::copy);
      rank_.submit(Copy{product.tensor(), copied.tensor()}, Lane::copy);
      order(Lane::copy, Lane::tp);
      rank_.submit(Add{copied.tensor(), product.tensor(), copied.tensor()}, Lane::tp);
      order(Lane::tp, Lane::compute);
      add(rank_, sum.tensor(), copied.tensor(), sum.tensor());
      rank_.submit(Rope{copied.tensor(), n, 1, n}, Lane::compute);
    }
    std::vector<float> result(static_cast<std::size_t>(n * n));
    backend_.read(sum.tensor(), result.data());
    return result;
  }

 private:
  Buffer make(const Shape& shape) {
    return rank_.allocate(shape, DType::f32, Category::activation);
  }
  void write(const Buffer& buffer, int seed) {
    std::vector<float> values(static_cast<std::size_t>(buffer.tensor().numel()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(seed)) % 5) - 2;
    backend_.write(buffer.tensor(), values.data());
  }

  Backend& backend_;
  Rank rank_;
};

std::vector<float> expected() {
  ReferenceBackend reference;
  return Program{reference}.run(true);
}
std::vector<float> result_of(unsigned seed, bool ordered) {
  Alone alone{seed};
  CudaBackend backend{alone.device, alone.transport, {}};
  return Program{backend}.run(ordered);
}

TEST(CudaBackend, FencesOrderLanesInEveryOrderThatStreamsAllow) {
  for (unsigned seed = 0; seed < 40; ++seed) EXPECT_EQ(result_of(seed, true), expected()) << seed;
}

/// Else the test above would say nothing.
TEST(CudaBackend, WithoutFencesSomeOrderIsWrong) {
  int num_wrong = 0;
  for (unsigned seed = 0; seed < 40; ++seed)
    if (result_of(seed, false) != expected()) ++num_wrong;
  EXPECT_GT(num_wrong, 10);
}

/// Runs on a new device for each of many orders.
template <class Body>
void in_many_orders(const Body& body) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    Alone alone{seed};
    CudaBackend backend{alone.device, alone.transport, {}};
    Rank rank{0, Mesh{{}}, backend};
    body(rank);
    if (::testing::Test::HasFailure()) return;
  }
}
void expect_all(Rank& rank, const Buffer& buffer, float value) {
  std::vector<float> values(static_cast<std::size_t>(buffer.tensor().numel()));
  rank.backend().read(buffer.tensor(), values.data());
  EXPECT_THAT(values, testing::Each(value));
}

TEST(CudaBackend, NewMemoryMayBeUsedOnAnyLane) {
  in_many_orders([](Rank& rank) {
    const Buffer x = rank.allocate({16}, DType::f32, Category::activation);
    rank.submit(Fill{x.tensor(), 3}, Lane::tp);
    expect_all(rank, x, 3);
  });
}

TEST(CudaBackend, MemoryIsGivenBackOnlyAfterAllLanes) {
  in_many_orders([](Rank& rank) {
    const Buffer y = rank.allocate({16}, DType::f32, Category::activation);
    {
      const Buffer x = rank.allocate({16}, DType::f32, Category::activation);
      rank.submit(Fill{x.tensor(), 3}, Lane::tp);
      rank.submit(Copy{x.tensor(), y.tensor()}, Lane::tp);
    }
    expect_all(rank, y, 3);
  });
}

TEST(CudaBackend, MemoryIsGivenBack) {
  Alone alone{3};
  {
    CudaBackend backend{alone.device, alone.transport, {}};
    (void)Program{backend}.run(true);
    EXPECT_GT(alone.device.num_allocated, 0) << "a table of angles stays";
  }
  EXPECT_EQ(alone.device.num_allocated, 0);
}

TEST(CudaBackend, AnOpThatNothingDoesIsAnInputErrorWithItsPath) {
  Alone alone{1};
  CudaBackend backend{alone.device, alone.transport, {}};
  Rank rank{0, Mesh{{}}, backend};
  const AttentionShape shape{.batch = 1, .seq = 4, .heads = 1, .kv_heads = 1, .head_dim = 8};
  const Buffer x = rank.allocate({4, 8}, DType::f32, Category::activation);
  const Buffer y = rank.allocate({4, 8}, DType::bf16, Category::activation);
  const Buffer lse = rank.allocate({1, 1, 4}, DType::f32, Category::activation);
  const auto scope = rank.scope("block0");
  try {
    attention(rank, {x.tensor(), y.tensor(), x.tensor(), x.tensor(), lse.tensor(), shape});
    FAIL() << "attention of two dtypes was accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("block0: attention"));
    EXPECT_THAT(error.what(), HasSubstr("with a tensor of bf16"));
  }
}

/// Attention forward and backward in bf16; how the gradients came about is seen from the device.
void run_attention(Backend& backend, DType dtype = DType::bf16) {
  Rank rank{0, Mesh{{}}, backend};
  const AttentionShape shape{.batch = 1, .seq = 4, .heads = 2, .kv_heads = 2, .head_dim = 8};
  const auto make = [&] { return rank.allocate({4, 16}, dtype, Category::activation); };
  const Buffer q = make(), k = make(), v = make(), o = make(), d_o = make();
  const Buffer dq = make(), dk = make(), dv = make();
  const Buffer lse = rank.allocate({1, 2, 4}, DType::f32, Category::activation);
  for (const Buffer* x : {&q, &k, &v, &d_o}) fill(rank, x->tensor(), 1);
  attention(rank, {q.tensor(), k.tensor(), v.tensor(), o.tensor(), lse.tensor(), shape});
  attention_backward(rank, {q.tensor(), k.tensor(), v.tensor(), o.tensor(), lse.tensor(),
                            d_o.tensor(), dq.tensor(), dk.tensor(), dv.tensor(), shape});
  std::vector<float> sums(8);
  backend.read(lse.tensor(), sums.data());
  for (std::size_t i = 0; i < sums.size(); ++i)
    EXPECT_NEAR(sums[i], std::sqrt(8.0F) + std::log(static_cast<float>(i % 4 + 1)), 1e-5);
}

TEST(CudaBackend, AttentionIsTheDevicesWhereItHasOne) {
  Alone alone{1};
  CudaBackend backend{alone.device, alone.transport, {}};
  run_attention(backend);
  EXPECT_EQ(alone.device.num_attentions, 2);
  EXPECT_TRUE(backend.notices().empty());
}

TEST(CudaBackend, AttentionIsMatmulsWhereTheDeviceHasNoneAndSaysWhy) {
  Alone alone{1};
  alone.device.attention.why_not = "no cuDNN";
  CudaBackend backend{alone.device, alone.transport, {}};
  run_attention(backend);
  run_attention(backend);
  EXPECT_EQ(alone.device.num_attentions, 0);
  EXPECT_THAT(backend.notices(), testing::ElementsAre("no cuDNN"));
}

TEST(CudaBackend, AttentionIsMatmulsWhereTheDeviceLacksTheShape) {
  Alone alone{1};
  alone.device.attention_backward.why_not = "no graph";
  CudaBackend backend{alone.device, alone.transport, {}};
  run_attention(backend);
  EXPECT_EQ(alone.device.num_attentions, 1) << "forward";
  EXPECT_THAT(backend.notices(), testing::ElementsAre("no graph"));
}

TEST(CudaBackend, AttentionInF32SaysThatItIsMatmuls) {
  Alone alone{1};
  CudaBackend backend{alone.device, alone.transport, {}};
  run_attention(backend, DType::f32);
  EXPECT_EQ(alone.device.num_attentions, 0);
  EXPECT_THAT(backend.notices(), testing::ElementsAre(HasSubstr("attention in f32")));
}

TEST(CudaBackend, AWaitForAFenceThatNobodySignalledIsAnErrorWithItsPath) {
  Alone alone{1};
  CudaBackend backend{alone.device, alone.transport, {}};
  Rank rank{0, Mesh{{}}, backend};
  const auto scope = rank.scope("block0");
  try {
    rank.await(Fence{9}, Lane::tp);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("block0: lane tp waits for fence 9"));
  }
}

/// A table of which an event could be taken by a later fence would let a wait pass too early.
TEST(EventTable, AnEventStandsForOneFenceUntilAllIsComplete) {
  EventTable<int> table;
  int num_made = 0;
  const auto make = [&] { return ++num_made; };
  for (std::uint32_t id = 1; id <= 5000; ++id) {
    EXPECT_EQ(table.record(Fence{id}, make), static_cast<int>(id));
  }
  EXPECT_EQ(*table.find(Fence{7}), 7);
  EXPECT_EQ(table.record(Fence{7}, make), 7) << "the same fence, signalled again";
  EXPECT_EQ(table.find(Fence{6000}), nullptr);
  table.complete_all();
  EXPECT_EQ(table.find(Fence{7}), nullptr);
  (void)table.record(Fence{5001}, make);
  EXPECT_EQ(num_made, 5000) << "an event is used again";
  EXPECT_NE(table.find(Fence{5001}), nullptr);
  table.complete_all();
  EXPECT_EQ(table.events().size(), 5000U);
}

TEST(CudaBackend, ANewRankCountsFencesOn) {
  Alone alone{1};
  CudaBackend backend{alone.device, alone.transport, {}};
  std::uint32_t last = 0;
  {
    Rank rank{0, Mesh{{}}, backend};
    last = rank.signal(Lane::tp).id;
  }
  EXPECT_GT(backend.first_fence(), last);
}

}  // namespace
}  // namespace shardmark::cuda
