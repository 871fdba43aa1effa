#pragma once

// Attention cores in tests: the cases they are tried on, one rank's program around a core, and the
// same attention on one rank to compare with.

#include "core/adaptors.hpp"
#include "core/bf16.hpp"
#include "core/cpu/backend.hpp"
#include "core/cpu/transport_threads.hpp"
#include "core/error.hpp"
#include "core/launch.hpp"
#include "core/reference/backend.hpp"
#include "layers/attention_core.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace shardmark::test {

/// Who sees whom.
struct Mask {
  std::string_view name;
  bool causal{false};
  std::int64_t window{0};
  std::vector<std::int64_t> starts{};
};
inline const std::vector<Mask>& all_masks() {
  static const std::vector<Mask> masks{{"full"},
                                       {"causal", true},
                                       {"window", true, 9},
                                       {"band", false, 5},
                                       {"packed", true, 0, {0, 7, 30}},
                                       {"packed_full", false, 0, {0, 20}}};
  return masks;
}
inline constexpr TokenOrder all_orders[] = {TokenOrder::contiguous, TokenOrder::zigzag,
                                            TokenOrder::striped};

/// A core on `ranks` ranks.
struct CoreCase {
  AttentionConfig config;
  int ranks{1};
  std::string_view mask{};

  [[nodiscard]] AttentionConfig on(const Group& cp) const {
    AttentionConfig one = config;
    one.context.cp = cp;
    return one;
  }
  /// The same attention on one rank.
  [[nodiscard]] AttentionConfig serial() const {
    AttentionConfig whole = config;
    whole.context = {};
    return whole;
  }
};
inline CoreCase core_case(ContextKind kind, TokenOrder order, int ranks, const Mask& mask,
                          bool overlap) {
  CoreCase result{{}, ranks, mask.name};
  result.config = {.batch = 2,
                   .seq = 48,
                   .heads = 4,
                   .kv_heads = 2,
                   .head_dim = 16,
                   .causal = mask.causal,
                   .window = mask.window,
                   .starts = mask.starts,
                   .overlap = overlap};
  result.config.context.kind = kind;
  result.config.context.order = order;
  return result;
}
inline std::string describe(const CoreCase& c) {
  const ContextParallel& context = c.config.context;
  return message(name_of(context.kind), ' ', name_of(context.order), " on ", c.ranks, ' ', c.mask,
                 c.config.overlap ? " overlap" : "", " heads ", c.config.heads, '/',
                 c.config.kv_heads, ' ', name_of(c.config.dtype), " batch ", c.config.batch);
}
inline std::ostream& operator<<(std::ostream& out, const CoreCase& c) { return out << describe(c); }

/// A core with its tensors on one rank. q, k, v are column blocks of one tensor, as behind a fused
/// projection, and so are their gradients.
class CoreProgram {
 public:
  CoreProgram(Rank& rank, const AttentionConfig& config)
      : rank_{rank}, core_{make_attention_core(config)}, state_{core_->make_state(rank)} {
    const std::int64_t rows = config.batch * config.context.local_places(config.seq).count();
    const std::int64_t q = config.heads * config.head_dim, kv = config.kv_heads * config.head_dim;
    qkv = rank.allocate({rows, q + 2 * kv}, config.dtype, Category::activation);
    o = rank.allocate({rows, q}, config.dtype, Category::activation);
    d_o = rank.allocate({rows, q}, config.dtype, Category::gradient);
    dqkv = rank.allocate({rows, q + 2 * kv}, config.dtype, Category::gradient);
    const auto heads = [&](const Tensor& fused) {
      return Heads{fused.column_block(0, q), fused.column_block(q, kv),
                   fused.column_block(q + kv, kv)};
    };
    in_ = heads(qkv.tensor());
    gradients_ = heads(dqkv.tensor());
  }
  void forward() { core_->forward(rank_, *state_, in_, o.tensor()); }
  void backward() { core_->backward(rank_, *state_, in_, o.tensor(), d_o.tensor(), gradients_); }

  Buffer qkv, o, d_o, dqkv;

 private:
  Rank& rank_;
  std::unique_ptr<AttentionCore> core_;
  std::unique_ptr<AttentionCore::State> state_;
  Heads in_, gradients_;
};

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
/// last key it sees, and all other values are small integers.
enum class Data : std::uint8_t { random, exact };
inline float element(Data data, std::uint64_t seed, std::int64_t row, std::int64_t col) {
  std::uint64_t z = seed * 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(row * 4096 + col);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  z ^= z >> 31;
  if (data == Data::exact) return static_cast<float>(static_cast<int>(z >> 62) - 1);
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

/// Output and gradients of q, k, v of one rank.
struct Results {
  std::vector<float> o, dqkv;
};
/// Forward and backward of one rank, `passes` times.
inline Results run_core(Rank& rank, const AttentionConfig& config, const Inputs& inputs,
                        int passes = 1) {
  CoreProgram program{rank, config};
  const Places places = config.context.local_places(config.seq);
  write_rows(rank.backend(), program.qkv.tensor(), inputs.qkv, config.seq, places);
  write_rows(rank.backend(), program.d_o.tensor(), inputs.d_o, config.seq, places);
  for (int pass = 0; pass < passes; ++pass) {
    program.forward();
    program.backward();
  }
  rank.synchronize();
  return {read_values(rank.backend(), program.o.tensor()),
          read_values(rank.backend(), program.dqkv.tensor())};
}
inline Results run_serial(const CoreCase& c, const Inputs& inputs) {
  ReferenceBackend reference;
  Rank rank{0, Mesh{{}}, reference};
  return run_core(rank, c.serial(), inputs);
}

/// Compares columns of the rows that a rank holds with those of the whole: relative error of their
/// norms, or, with tolerance 0, every element.
struct Comparison {
  const CoreCase& c;
  int rank;
  double tolerance;

  void expect(const char* what, const std::vector<float>& got, const std::vector<float>& whole,
              std::int64_t first, std::int64_t count, std::int64_t cols) const {
    const Places places =
        c.on(Group{Axis::cp, 0, 1, c.ranks, rank}).context.local_places(c.config.seq);
    double difference = 0, size = 0;
    for (std::int64_t row = 0; row < c.config.batch * places.count(); ++row)
      for (std::int64_t col = first; col < first + count; ++col) {
        const std::int64_t from =
            row / places.count() * c.config.seq + places[row % places.count()];
        const float expected = whole[static_cast<std::size_t>(from * cols + col)];
        const float value = got[static_cast<std::size_t>(row * cols + col)];
        difference += std::pow(value - expected, 2);
        size += std::pow(expected, 2);
        if (tolerance > 0 || value == expected) continue;
        ADD_FAILURE() << c << ": rank " << rank << ' ' << what << '[' << row << ',' << col - first
                      << "]: expected " << expected << ", got " << value;
        return;
      }
    if (tolerance == 0) return;
    EXPECT_LE(std::sqrt(difference / std::max(size, 1e-30)), tolerance)
        << c << ": rank " << rank << ' ' << what;
  }
};

/// Runs the case on threads, two steps on the same memory, and compares what every rank then has
/// with the same attention on one rank in f64.
template <class Host>
void expect_equal_to_serial(const CoreCase& c, Data data, double tolerance) {
  const Inputs inputs = make_inputs(c.config, data);
  const Results whole = run_serial(c, inputs);
  std::vector<Results> parts(static_cast<std::size_t>(c.ranks));
  const Mesh mesh{{.cp = c.ranks}};
  run_threads(c.ranks, [&](Transport& transport) {
    transport.set_wait_policy({.yield = true, .timeout_s = 30});
    Host host{transport};
    Rank rank{transport.rank(), mesh, host.backend};
    const AttentionConfig config = c.on(rank.group(Axis::cp));
    for (const Group& group : {config.context.ulysses_group(), config.context.ring_group()})
      transport.connect(group, Lane::cp);
    parts[static_cast<std::size_t>(transport.rank())] = run_core(rank, config, inputs, 2);
  });
  const std::int64_t q = c.config.heads * c.config.head_dim;
  const std::int64_t kv = c.config.kv_heads * c.config.head_dim;
  for (int rank = 0; rank < c.ranks; ++rank) {
    const Results& part = parts[static_cast<std::size_t>(rank)];
    const Comparison comparison{c, rank, tolerance};
    comparison.expect("o", part.o, whole.o, 0, q, q);
    comparison.expect("dq", part.dqkv, whole.dqkv, 0, q, q + 2 * kv);
    comparison.expect("dk", part.dqkv, whole.dqkv, q, kv, q + 2 * kv);
    comparison.expect("dv", part.dqkv, whole.dqkv, q + kv, kv, q + 2 * kv);
  }
}

}  // namespace shardmark::test
