// Translations of all members of a group, run together: what NCCL's manual says of each call, on
// host memory.

#include "core/cuda/translate/translate.hpp"
#include "core/error.hpp"
#include "tests/cuda/evaluate.hpp"
#include "tests/cuda/evaluate_nccl.hpp"
#include "tests/support/collective_data.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>

namespace shardmark::cuda {
namespace {

using conformance::Data;
using conformance::reduced;
using conformance::value_at;

Group group_of(int size, int position) { return {Axis::tp, 0, 1, size, position}; }

/// A member's calls of one op.
using Members = std::vector<Translation>;

const NcclGroup* nccl_of(const Translation& translation) {
  if (translation.calls.empty()) return nullptr;
  return std::get_if<NcclGroup>(&translation.calls.front());
}

void run_members(const Members& members) {
  std::vector<const NcclGroup*> groups;
  std::vector<NcclCall> collectives;
  for (const Translation& member : members) {
    EXPECT_EQ(member.unavailable, "");
    const NcclGroup* group = nccl_of(member);
    if (group == nullptr) continue;
    groups.push_back(group);
    const NcclFunction function = group->calls.front().function;
    if (function != NcclFunction::send && function != NcclFunction::receive) {
      ASSERT_EQ(group->calls.size(), 1U);
      collectives.push_back(group->calls.front());
    }
  }
  if (!collectives.empty()) {
    ASSERT_EQ(collectives.size(), members.size()) << "a member does not take part";
    host::run_collective(collectives);
  } else {
    host::run_messages(groups);
  }
  for (const Translation& member : members)
    for (const Call& call : member.calls)
      if (!std::holds_alternative<NcclGroup>(call))
        std::visit([](const auto& c) { host::run(c); }, call);
}

/// Buffers of each member.
class Buffers {
 public:
  Buffers(int num_members, DType dtype, std::int64_t numel) {
    for (int member = 0; member < num_members; ++member)
      data_.push_back(std::make_unique<Data>(dtype, numel));
  }
  [[nodiscard]] Data& operator[](int member) { return *data_[static_cast<std::size_t>(member)]; }

 private:
  std::vector<std::unique_ptr<Data>> data_;
};

struct Variant {
  int size{1};
  DType dtype{DType::f32};
  std::int64_t numel{0};  ///< of a block
  bool in_place{false};
};

template <class Run>
void for_variants(const Run& run) {
  for (const int size : {1, 2, 3, 4, 5})
    for (const DType dtype : conformance::dtypes)
      for (const std::int64_t numel : {0, 1, 37})
        for (const bool in_place : {false, true}) {
          run(Variant{size, dtype, numel, in_place});
          if (::testing::Test::HasFailure()) {
            ADD_FAILURE() << size << " members, " << name_of(dtype) << ", " << numel
                          << (in_place ? " in place" : "");
            return;
          }
        }
}

void expect_elements(const Data& data, const std::string& what, std::int64_t count,
                     const std::function<double(std::int64_t)>& expected) {
  for (std::int64_t i = 0; i < count; ++i)
    ASSERT_EQ(data.get(i), expected(i)) << what << ", element " << i;
}

TEST(Collectives, ReductionsAreExact) {
  for_variants([](const Variant& v) {
    for (const Reduction reduction : conformance::reductions) {
      Buffers x{v.size, v.dtype, v.numel}, y{v.size, v.dtype, v.numel};
      Members members;
      for (int m = 0; m < v.size; ++m) {
        x[m].fill([&](std::int64_t i) { return value_at(reduction, m, i); });
        const Tensor& to = v.in_place ? Tensor{} : y[m].tensor();
        members.push_back(
            translate(AllReduce{x[m].tensor(), group_of(v.size, m), reduction, to}, {}));
      }
      run_members(members);
      for (int m = 0; m < v.size; ++m)
        expect_elements(
            v.in_place ? x[m] : y[m], message("all_reduce ", name_of(reduction)), v.numel,
            [&](std::int64_t i) { return reduced(v.dtype, reduction, group_of(v.size, m), i); });
    }
  });
}

TEST(Collectives, ReduceToEachRoot) {
  for_variants([](const Variant& v) {
    for (const Reduction reduction : {Reduction::sum, Reduction::avg})
      for (int root = 0; root < v.size; ++root) {
        Buffers x{v.size, v.dtype, v.numel}, y{v.size, v.dtype, v.numel};
        Members members;
        for (int m = 0; m < v.size; ++m) {
          x[m].fill([&](std::int64_t i) { return value_at(m, i); });
          const Tensor to = v.in_place ? x[m].tensor() : y[m].tensor();
          members.push_back(
              translate(Reduce{x[m].tensor(), to, group_of(v.size, m), root, reduction}, {}));
        }
        run_members(members);
        expect_elements(v.in_place ? x[root] : y[root], "reduce", v.numel, [&](std::int64_t i) {
          return reduced(v.dtype, reduction, group_of(v.size, root), i);
        });
      }
  });
}

TEST(Collectives, ReduceScatterAndAllGather) {
  for_variants([](const Variant& v) {
    const std::int64_t total = v.numel * v.size;
    for (const Reduction reduction : conformance::reductions) {
      Buffers x{v.size, v.dtype, total}, y{v.size, v.dtype, v.numel}, z{v.size, v.dtype, total};
      Members scatter, gather;
      for (int m = 0; m < v.size; ++m) {
        x[m].fill([&](std::int64_t i) { return value_at(reduction, m, i); });
        const Tensor mine = v.in_place ? x[m].block(m, v.numel) : y[m].tensor();
        const Tensor all = v.in_place ? x[m].tensor() : z[m].tensor();
        scatter.push_back(
            translate(ReduceScatter{x[m].tensor(), mine, group_of(v.size, m), reduction}, {}));
        gather.push_back(translate(AllGather{mine, all, group_of(v.size, m)}, {}));
      }
      run_members(scatter);
      run_members(gather);
      for (int m = 0; m < v.size; ++m)
        expect_elements(
            v.in_place ? x[m] : z[m], "reduce_scatter, then all_gather", total,
            [&](std::int64_t i) { return reduced(v.dtype, reduction, group_of(v.size, m), i); });
    }
  });
}

TEST(Collectives, BroadcastGatherAndScatterFromEachRoot) {
  for_variants([](const Variant& v) {
    const std::int64_t total = v.numel * v.size;
    for (int root = 0; root < v.size; ++root) {
      Buffers x{v.size, v.dtype, total}, y{v.size, v.dtype, total}, part{v.size, v.dtype, v.numel};
      Members broadcast, scatter, gather;
      for (int m = 0; m < v.size; ++m) {
        const Group group = group_of(v.size, m);
        x[m].fill([&](std::int64_t i) { return value_at(m, i); });
        const bool own = v.in_place && m == root;
        const Tensor mine = own ? y[m].block(root, v.numel) : part[m].tensor();
        broadcast.push_back(translate(
            Broadcast{own ? y[m].tensor() : x[m].tensor(), y[m].tensor(), group, root}, {}));
        if (own) y[m].fill([&](std::int64_t i) { return value_at(m, i); });
        scatter.push_back(translate(Scatter{y[m].tensor(), mine, group, root}, {}));
        gather.push_back(translate(Gather{mine, y[m].tensor(), group, root}, {}));
      }
      run_members(broadcast);
      const auto of_root = [&](std::int64_t i) { return value_at(root, i); };
      for (int m = 0; m < v.size; ++m) expect_elements(y[m], "broadcast", total, of_root);
      run_members(scatter);
      for (int m = 0; m < v.size; ++m)
        if (!v.in_place || m != root)
          expect_elements(part[m], "scatter", v.numel,
                          [&](std::int64_t i) { return of_root(m * v.numel + i); });
      if (!v.in_place) y[root].fill([](std::int64_t) { return 1; });
      run_members(gather);
      expect_elements(y[root], "gather", total, of_root);
    }
  });
}

TEST(Collectives, AllToAllOfEqualAndOfOtherBlocks) {
  for_variants([](const Variant& v) {
    const std::int64_t total = v.numel * v.size;
    const auto n = static_cast<std::size_t>(v.size);
    std::vector<std::int64_t> counts(n * n);
    std::vector<std::int64_t> sent(n), received(n);
    for (std::size_t i = 0; i < n * n; ++i) {
      counts[i] = v.numel == 0 ? 0 : static_cast<std::int64_t>((i * 5 + 2) % 4) * v.numel;
      sent[i / n] += counts[i];
      received[i % n] += counts[i];
    }
    Buffers x{v.size, v.dtype, total}, y{v.size, v.dtype, total};
    Members equal, unequal;
    std::vector<std::unique_ptr<Data>> from, to;
    for (int m = 0; m < v.size; ++m) {
      x[m].fill([&](std::int64_t i) { return value_at(m, i); });
      equal.push_back(translate(AllToAll{x[m].tensor(), y[m].tensor(), group_of(v.size, m)}, {}));
      from.push_back(std::make_unique<Data>(v.dtype, sent[static_cast<std::size_t>(m)]));
      to.push_back(std::make_unique<Data>(v.dtype, received[static_cast<std::size_t>(m)]));
      from.back()->fill([&](std::int64_t i) { return value_at(m, i); });
      unequal.push_back(translate(
          AllToAllV{from.back()->tensor(), to.back()->tensor(), group_of(v.size, m), counts}, {}));
    }
    run_members(equal);
    run_members(unequal);
    for (int m = 0; m < v.size; ++m) {
      expect_elements(y[m], "all_to_all", total, [&](std::int64_t i) {
        return value_at(static_cast<int>(i / v.numel), m * v.numel + i % v.numel);
      });
      std::int64_t at = 0;
      for (std::size_t peer = 0; peer < n; ++peer) {
        std::int64_t begin = 0;
        for (int k = 0; k < m; ++k) begin += counts[peer * n + static_cast<std::size_t>(k)];
        const std::int64_t count = counts[peer * n + static_cast<std::size_t>(m)];
        for (std::int64_t i = 0; i < count; ++i, ++at)
          ASSERT_EQ(to[static_cast<std::size_t>(m)]->get(at),
                    value_at(static_cast<int>(peer), begin + i))
              << "all_to_all_v, member " << m << ", element " << at;
      }
    }
  });
}

TEST(Collectives, MessagesRoundARingAndToOneself) {
  for_variants([](const Variant& v) {
    if (v.in_place) return;
    Buffers x{v.size, v.dtype, v.numel}, y{v.size, v.dtype, v.numel};
    Members members;
    for (int m = 0; m < v.size; ++m) {
      x[m].fill([&](std::int64_t i) { return value_at(m, i); });
      members.push_back(translate(SendRecv{x[m].tensor(), y[m].tensor(), group_of(v.size, m),
                                           (m + 1) % v.size, (m + v.size - 1) % v.size},
                                  {}));
    }
    run_members(members);
    for (int m = 0; m < v.size; ++m)
      expect_elements(y[m], "send_recv", v.numel,
                      [&](std::int64_t i) { return value_at((m + v.size - 1) % v.size, i); });
  });
}

TEST(Collectives, AMessageMayGoOneWayOnly) {
  Data x{DType::f32, 5}, y{DType::f32, 5};
  x.fill([](std::int64_t i) { return value_at(0, i); });
  run_members({translate(SendRecv{x.tensor(), {}, group_of(3, 0), 2, -1}, {}),
               translate(SendRecv{{}, {}, group_of(3, 1), -1, -1}, {}),
               translate(SendRecv{{}, y.tensor(), group_of(3, 2), -1, 0}, {})});
  expect_elements(y, "one way", 5, [](std::int64_t i) { return value_at(0, i); });
}

TEST(Collectives, ABlockThatIsInPlaceIsNoMessage) {
  Data whole{DType::f32, 12};
  const Group group = group_of(3, 1);
  const Tensor mine = whole.block(1, 4);
  for (const Op& op :
       {Op{Gather{mine, whole.tensor(), group, 1}}, Op{Scatter{whole.tensor(), mine, group, 1}}}) {
    const Translation translation = translate(op, {});
    EXPECT_EQ(nccl_of(translation)->calls.size(), 2U) << name_of(op);
    for (const NcclCall& call : nccl_of(translation)->calls) EXPECT_NE(call.peer, 1);
  }
}

TEST(Collectives, ABarrierIsOneCallOfAllMembers) {
  const Translation translation = translate(Barrier{group_of(3, 1)}, {});
  const NcclGroup* group = nccl_of(translation);
  ASSERT_NE(group, nullptr);
  EXPECT_TRUE(group->barrier);
  EXPECT_EQ(group->calls.front().function, NcclFunction::all_reduce);
  EXPECT_TRUE(translate(Barrier{group_of(1, 0)}, {}).calls.empty());
}

TEST(Collectives, AveragesAreNcclsOnlyWhereTheyAreExact) {
  Data x{DType::f32, 8}, ids{DType::i32, 8};
  const auto asked = [](const Tensor& tensor, int size) {
    const Translation translation =
        translate(AllReduce{tensor, group_of(size, 0), Reduction::avg}, {});
    return std::pair{nccl_of(translation)->calls.front().reduction, translation.calls.size()};
  };
  EXPECT_EQ(asked(x.tensor(), 4), (std::pair{Reduction::avg, std::size_t{1}}));
  EXPECT_EQ(asked(x.tensor(), 3), (std::pair{Reduction::sum, std::size_t{2}}));
  EXPECT_EQ(asked(ids.tensor(), 4), (std::pair{Reduction::sum, std::size_t{2}}));
}

TEST(Collectives, StridedTensorsAreRefused) {
  Data x{DType::f32, 32};
  Tensor strided = x.tensor();
  strided.shape = {4, 4};
  strided.row_stride = 8;
  EXPECT_THROW((void)translate(AllReduce{strided, group_of(2, 0)}, {}), Error);
}

/// Every communication op is named here and above; a new one fails here until it is.
TEST(Collectives, EveryOneIsCompared) {
  const std::set<std::size_t> compared{
      Op{AllReduce{}}.index(), Op{AllGather{}}.index(), Op{ReduceScatter{}}.index(),
      Op{AllToAll{}}.index(),  Op{AllToAllV{}}.index(), Op{Broadcast{}}.index(),
      Op{Reduce{}}.index(),    Op{Gather{}}.index(),    Op{Scatter{}}.index(),
      Op{SendRecv{}}.index(),  Op{Barrier{}}.index()};
  EXPECT_EQ(compared.size(), std::variant_size_v<CommunicationOp>);
}

}  // namespace
}  // namespace shardmark::cuda
