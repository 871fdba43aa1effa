#pragma once

// Ops as their calls make them, against the reference backend.

#include "core/cuda/translate/translate.hpp"
#include "core/error.hpp"
#include "tests/cuda/examples.hpp"
#include "tests/cuda/pool.hpp"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace shardmark::cuda {

/// Runs the calls of a translation to their end.
using RunCalls = std::function<void(const Translation&)>;

/// Relative: f32 is computed in f32 and summed in another order than the reference's f64; bf16 and
/// f16 may round the other way.
inline double tolerance(const Op& op) {
  double most = 3e-5;
  for (const Tensor& tensor : touches(op).writes) {
    if (tensor.dtype == DType::bf16) most = std::max(most, 1.0 / 128);
    if (tensor.dtype == DType::f16) most = std::max(most, 1.0 / 1024);
  }
  return most;
}

/// The angles of a rotation, in the pool; null for other ops.
inline const float* table_for(Pool& pool, const Op& op) {
  const auto* const rope = std::get_if<Rope>(&op);
  if (rope == nullptr) return nullptr;
  const std::vector<float> values = rotary_table(*rope);
  auto* const table =
      pool.empty({static_cast<std::int64_t>(values.size())}, DType::f32).as<float>();
  std::copy(values.begin(), values.end(), table);
  return table;
}

/// The translation, run call by call, does what the reference backend does.
inline void compare(Pool& pool, const Op& op, const std::string& what, const RunCalls& run) {
  const float* const table = table_for(pool, op);
  const std::vector<std::byte> before = pool.snapshot();
  run_reference(op);
  const std::vector<std::byte> expected = pool.snapshot();
  pool.restore(before);
  const Translation translation = translate(op, {nullptr, table});
  EXPECT_EQ(translation.unavailable, "") << what;
  run(translation);
  const std::vector<std::byte> result = pool.snapshot();
  expect_agreement(op, {pool, before, expected, result}, tolerance(op), what);
  pool.restore(before);
}

/// Until the first that differs.
inline void compare_with_reference(Pool& pool, const MakeOps& make_ops, const RunCalls& run) {
  for (const Layout& layout : layouts()) {
    pool.clear();
    for (const Op& op : make_ops(pool, layout)) {
      compare(pool, op, message(name_of(op), " on ", layout.to_string()), run);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace shardmark::cuda
