#pragma once

// Attention cores on threads against the same attention on one rank in f64.

#include "core/adaptors.hpp"
#include "core/bf16.hpp"
#include "core/cpu/backend.hpp"
#include "core/cpu/transport_threads.hpp"
#include "core/launch.hpp"
#include "core/reference/backend.hpp"
#include "tests/context/cores.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

namespace shardmark::test {

/// Reference kernels and communication between threads; one op after the other, as submitted.
class ReferenceRank final : public BackendAdaptor {
 public:
  ReferenceRank(Backend& kernels, Transport& transport)
      : BackendAdaptor{kernels}, transport_{transport} {}
  void execute(const OpRecord& record) override {
    const Group* group = group_of(record.op);
    if (group == nullptr || group->size == 1) return inner().execute(record);
    transport_.start(record.op, record.lane);
    Waiter waiter{transport_};
    while (!transport_.test(record.lane)) waiter.pause([&] { return *record.path; });
  }

 private:
  Transport& transport_;
};

/// What a rank runs on: with reference kernels, what is wrong is the core.
struct ReferenceHost {
  explicit ReferenceHost(Transport& transport) : backend{kernels, transport} {}
  ReferenceBackend kernels;
  ReferenceRank backend;
};
struct CpuHost {
  explicit CpuHost(Transport& transport) : backend{transport, arena, kernels} {}
  Arena arena{std::int64_t{1} << 26U};
  Kernels kernels{1, arena};
  CpuBackend backend;
};

/// Values of a whole tensor: row r is token r % seq of batch entry r / seq.
using Matrix = std::vector<std::vector<float>>;

/// Random: uniform in +-1. Exact: logits differ so much that each query takes the value of the
/// last key it sees, and all other values are -1, 0 or 1.
enum class Data : std::uint8_t { random, exact };
inline float element(Data data, std::uint64_t seed, std::int64_t row, std::int64_t col) {
  std::uint64_t z = seed * 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(row * 4096 + col);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  z ^= z >> 31;
  if (data == Data::exact) return static_cast<float>((z >> 62 == 3) - (z >> 62 == 0));
  return static_cast<float>(z >> 40) * 0x1p-23F - 1.0F;
}

struct Inputs {
  Matrix qkv, d_o;
};
inline Inputs make_inputs(const AttentionConfig& config, Data data) {
  const std::int64_t q = config.heads * config.head_dim, kv = config.kv_heads * config.head_dim;
  Inputs inputs;
  for (std::int64_t row = 0; row < config.batch * config.seq; ++row) {
    std::vector<float>& qkv = inputs.qkv.emplace_back();
    for (std::int64_t col = 0; col < q + 2 * kv; ++col) {
      const bool first_of_head = col % config.head_dim == 0;
      float value = element(data, 1, row, col);
      if (data == Data::exact && col < q) value = first_of_head ? 8192.0F : 0.0F;
      if (data == Data::exact && col >= q && col < q + kv)
        value = first_of_head ? static_cast<float>(row % config.seq) : 0.0F;
      qkv.push_back(value);
    }
    std::vector<float>& d_o = inputs.d_o.emplace_back();
    for (std::int64_t col = 0; col < q; ++col) d_o.push_back(element(data, 2, row, col));
  }
  return inputs;
}

/// Writes the rows that a rank holds of a whole tensor.
inline void write_rows(Backend& backend, const Tensor& to, const Matrix& whole, std::int64_t seq,
                       const Places& places) {
  std::vector<float> f32;
  std::vector<std::uint16_t> bf16;
  for (std::int64_t row = 0; row < to.rows(); ++row) {
    const std::int64_t from = row / places.count() * seq + places[row % places.count()];
    for (const float value : whole[static_cast<std::size_t>(from)]) {
      f32.push_back(value);
      bf16.push_back(to_bf16(value));
    }
  }
  backend.write(to, to.dtype == DType::bf16 ? static_cast<void*>(bf16.data()) : f32.data());
}

inline std::vector<float> read_values(Backend& backend, const Tensor& from) {
  std::vector<float> values(static_cast<std::size_t>(from.numel()));
  if (from.dtype == DType::f32) {
    backend.read(from, values.data());
    return values;
  }
  std::vector<std::uint16_t> bits(values.size());
  backend.read(from, bits.data());
  for (std::size_t i = 0; i < bits.size(); ++i) values[i] = to_float(bits[i]);
  return values;
}

/// Outputs and gradients of all tokens, put together from the ranks that hold them.
struct Results {
  struct Rows {
    const char* name;
    std::int64_t cols;
    std::vector<float> values;
  };
  explicit Results(const AttentionConfig& config)
      : owners(static_cast<std::size_t>(config.batch * config.seq)) {
    const std::int64_t q = config.heads * config.head_dim, kv = config.kv_heads * config.head_dim;
    for (const auto& [name, cols] : {std::pair{"o", q}, {"dq", q}, {"dk", kv}, {"dv", kv}})
      tensors.push_back(
          {name, cols, std::vector<float>(owners.size() * static_cast<std::size_t>(cols))});
  }
  std::vector<Rows> tensors;
  std::vector<int> owners;  ///< the member of cp that holds a row
};

/// Forward and backward of one rank, `passes` times on the same memory.
inline void run_core(Rank& rank, const AttentionConfig& config, const Inputs& inputs, int passes,
                     Results& results) {
  CoreProgram program{rank, config};
  const Places places = config.context.local_places(config.seq);
  write_rows(rank.backend(), program.qkv.tensor(), inputs.qkv, config.seq, places);
  write_rows(rank.backend(), program.d_o.tensor(), inputs.d_o, config.seq, places);
  for (int pass = 0; pass < passes; ++pass) {
    program.forward();
    program.backward();
  }
  rank.synchronize();
  const std::vector<float> o = read_values(rank.backend(), program.o.tensor());
  const std::vector<float> dqkv = read_values(rank.backend(), program.dqkv.tensor());
  auto from_o = o.begin(), from_dqkv = dqkv.begin();
  for (std::int64_t row = 0; row < program.o.tensor().rows(); ++row) {
    const std::int64_t token = row / places.count() * config.seq + places[row % places.count()];
    results.owners[static_cast<std::size_t>(token)] = config.context.cp.position;
    for (Results::Rows& rows : results.tensors) {
      auto& from = &rows == &results.tensors.front() ? from_o : from_dqkv;
      std::copy(from, from + rows.cols, rows.values.begin() + token * rows.cols);
      from += rows.cols;
    }
  }
}
/// In f64.
inline Results run_serial(const CoreCase& c, const Inputs& inputs) {
  ReferenceBackend reference;
  Rank rank{0, Mesh{{}}, reference};
  Results results{c.config};
  run_core(rank, c.serial(), inputs, 1, results);
  return results;
}
/// On threads, two steps on the same memory.
template <class Host>
Results run_parallel(const CoreCase& c, const Inputs& inputs) {
  Results results{c.config};
  const Mesh mesh{{.cp = c.ranks}};
  run_threads(c.ranks, [&](Transport& transport) {
    transport.set_wait_policy({.yield = true, .timeout_s = 30});
    Host host{transport};
    Rank rank{transport.rank(), mesh, host.backend};
    const AttentionConfig config = c.on(rank.group(Axis::cp));
    for (const Group& group : {config.context.ulysses_group(), config.context.ring_group()})
      transport.connect(group, Lane::cp);
    run_core(rank, config, inputs, 2, results);
  });
  return results;
}

/// 0 for equal values, also NaN; infinite where only one is NaN or infinite.
inline double distance(float value, float expected) {
  if (value == expected || (std::isnan(value) && std::isnan(expected))) return 0;
  if (!std::isfinite(value) || !std::isfinite(expected))
    return std::numeric_limits<double>::infinity();
  return std::abs(static_cast<double>(value) - static_cast<double>(expected));
}
/// Norm of the differences over norm of the finite expected values.
inline double relative_error(const Results::Rows& got, const Results::Rows& expected) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < got.values.size(); ++i) {
    difference += std::pow(distance(got.values[i], expected.values[i]), 2);
    if (std::isfinite(expected.values[i])) size += std::pow(expected.values[i], 2);
  }
  return difference == 0 ? 0 : std::sqrt(difference / std::max(size, 1e-30));
}
inline void expect_equal(const CoreCase& c, const Results& got, const Results& expected,
                         double tolerance) {
  for (std::size_t i = 0; i < got.tensors.size(); ++i) {
    const auto& [name, cols, values] = got.tensors[i];
    const double error = relative_error(got.tensors[i], expected.tensors[i]);
    if (error <= tolerance) continue;
    std::size_t worst = 0;
    const auto distance_at = [&](std::size_t at) {
      return distance(values[at], expected.tensors[i].values[at]);
    };
    for (std::size_t at = 0; at < values.size(); ++at)
      if (distance_at(at) > distance_at(worst)) worst = at;
    const std::size_t token = worst / static_cast<std::size_t>(cols);
    ADD_FAILURE() << c << ": relative error " << error << " of " << name << "; worst on rank "
                  << got.owners[token] << ": token " << token << " column "
                  << worst % static_cast<std::size_t>(cols) << ", expected "
                  << expected.tensors[i].values[worst] << ", got " << values[worst];
  }
}

template <class Host>
void expect_equal_to_serial(const CoreCase& c, Data data, double tolerance) {
  const Inputs inputs = make_inputs(c.config, data);
  expect_equal(c, run_parallel<Host>(c, inputs), run_serial(c, inputs), tolerance);
}

/// MHA, GQA and MQA in every order, under every mask, in f32 and bf16.
inline std::vector<CoreCase> value_cases(ContextKind kind, int ranks) {
  std::vector<CoreCase> cases;
  for (const TokenOrder order : all_orders)
    for (const Mask& mask : all_masks())
      for (const int kv_heads : {4, 2, 1})
        for (const DType dtype : {DType::f32, DType::bf16}) {
          if (ranks == 8 && kv_heads != 2) continue;
          CoreCase c = core_case(kind, order, ranks, mask, kv_heads != 2);
          c.config.kv_heads = kv_heads;
          c.config.dtype = dtype;
          c.config.batch = kv_heads == 4 ? 1 : 2;
          c.config.context.head_chunks = 2;
          cases.push_back(c);
        }
  return cases;
}

/// Bitwise on exact data; on random data to `tolerance` in f32 and 2e-2 in bf16.
template <class Host>
void expect_values(const CoreCase& c, double tolerance) {
  expect_equal_to_serial<Host>(c, Data::exact, 0);
  expect_equal_to_serial<Host>(c, Data::random, c.config.dtype == DType::bf16 ? 2e-2 : tolerance);
}

/// Logits far beyond what exp can take, and infinities and NaN here and there: whatever one rank
/// makes of them.
template <class Host>
void expect_equal_on_special_values(const CoreCase& c) {
  const Inputs ordinary = make_inputs(c.config, Data::random);
  const auto head_dim = static_cast<std::size_t>(c.config.head_dim);
  const std::size_t k = static_cast<std::size_t>(c.config.heads) * head_dim;
  const std::size_t v = k + static_cast<std::size_t>(c.config.kv_heads) * head_dim;
  constexpr float infinity = std::numeric_limits<float>::infinity();

  Inputs inputs = ordinary;  // logits around 1e4, and one row far below all others
  for (std::size_t col = k; col < v; ++col) inputs.qkv[5][col] *= 1e4F;
  for (std::size_t col = 0; col < k; ++col) inputs.qkv[9][col] = 1;
  for (std::size_t col = k; col < v; ++col) inputs.qkv[8][col] = -1e4F;
  // An f32 log-sum-exp of 1e4 is good for three digits of a probability.
  expect_equal(c, run_parallel<Host>(c, inputs), run_serial(c, inputs), 1e-2);

  for (std::size_t col = 0; col < k; ++col) inputs.qkv[5][col] *= 1e4F;  // logits around 1e8
  for (const Results::Rows& rows : run_parallel<Host>(c, inputs).tensors)
    EXPECT_TRUE(std::ranges::all_of(rows.values, [](float value) { return std::isfinite(value); }))
        << c << ": " << rows.name;

  inputs = ordinary;
  inputs.qkv[14][k] = infinity;
  inputs.qkv[22][v + 3] = -infinity;
  inputs.qkv[31][0] = -infinity;
  inputs.qkv[40][k + 1] = std::numeric_limits<float>::quiet_NaN();
  inputs.d_o[17][2] = infinity;
  expect_equal(c, run_parallel<Host>(c, inputs), run_serial(c, inputs), 1e-5);
}

/// The error against f64 on more ranks is at most twice that on one, the first of `all_ranks`.
template <class Host>
void expect_no_growth_of_error(CoreCase c, const std::vector<int>& all_ranks) {
  c.config.batch = 1;
  c.config.seq = 384;
  const Inputs inputs = make_inputs(c.config, Data::random);
  const Results expected = run_serial(c, inputs);
  std::vector<double> alone;
  for (const int ranks : all_ranks) {
    c.ranks = ranks;
    const Results got = run_parallel<Host>(c, inputs);
    for (std::size_t i = 0; i < got.tensors.size(); ++i) {
      const double error = relative_error(got.tensors[i], expected.tensors[i]);
      if (ranks == 1) alone.push_back(error);
      EXPECT_LE(error, 2 * alone[i]) << c << ": " << got.tensors[i].name;
    }
  }
}

}  // namespace shardmark::test
