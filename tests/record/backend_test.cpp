#include "core/record/backend.hpp"

#include "core/error.hpp"
#include "tests/record/recorded.hpp"

#include <gmock/gmock.h>

namespace shardmark::test {
namespace {

TEST(RecordBackend, HoldsNoData) {
  RecordedRank recorded{0, Mesh{{}}};
  const Buffer x = recorded.rank.allocate({2}, DType::f32, Category::weight);
  EXPECT_EQ(x.tensor().data, nullptr);
  float values[2]{};
  recorded.backend.write(x.tensor(), values);
  EXPECT_THROW(recorded.backend.read(x.tensor(), values), Error);
}

TEST(RecordBackend, KeepsOpsWithTheirPath) {
  RecordedRank recorded{0, Mesh{{}}};
  const Buffer x = recorded.rank.allocate({2}, DType::f32, Category::weight);
  const auto scope = recorded.rank.scope("step");
  fill(recorded.rank, x.tensor(), 1);
  recorded.rank.synchronize();
  ASSERT_EQ(recorded.list.ops.size(), 1U);
  EXPECT_EQ(to_string(recorded.list.ops[0]), "0 compute step fill f32 -> 1+0:2");
}

}  // namespace
}  // namespace shardmark::test
