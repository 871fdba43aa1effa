// Attention of some queries to some keys: masks, parts of a sequence one after another as in a
// ring, infinities and NaNs. What is right comes from the reference backend's ops in f64.

#include "core/reference/ops.hpp"
#include "tests/unit/kernels_fixture.hpp"

#include <limits>
#include <string>

namespace shardmark {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// All tokens of one sequence; `shape.seq` is its length.
struct Problem {
  AttentionShape shape;
  Matrix q, k, v, d_o;
};
/// lse has a row for each head.
struct Results {
  Matrix o, lse, dq, dk, dv;
  [[nodiscard]] std::vector<std::pair<const char*, const Matrix*>> all() const {
    return {{"o", &o}, {"lse", &lse}, {"dq", &dq}, {"dk", &dk}, {"dv", &dv}};
  }
};
using Runner = std::function<void(const Op&)>;

/// One piece, two pieces, or every n-th token: what each of `parts` ranks holds.
std::vector<Places> parts_of(const std::string& order, std::int64_t seq, std::int64_t parts) {
  std::vector<Places> held;
  const std::int64_t count = seq / parts, half = count / 2;
  for (std::int64_t part = 0; part < parts; ++part) {
    if (order == "contiguous") held.push_back({{Places::Run{part * count, count, 1}, {}}});
    if (order == "striped") held.push_back({{Places::Run{part, count, parts}, {}}});
    if (order == "zigzag")
      held.push_back({{Places::Run{part * half, half, 1},
                       Places::Run{(2 * parts - 1 - part) * half, half, 1}}});
  }
  return held;
}

Matrix rows_at(const Matrix& whole, const Places& places) {
  Matrix rows{places.count(), whole.cols};
  for (std::int64_t r = 0; r < rows.rows; ++r)
    for (std::int64_t c = 0; c < rows.cols; ++c) rows(r, c) = whole(places[r], c);
  return rows;
}
void put_rows(const Matrix& rows, const Places& places, Matrix& whole) {
  for (std::int64_t r = 0; r < rows.rows; ++r)
    for (std::int64_t c = 0; c < rows.cols; ++c) whole(places[r], c) = rows(r, c);
}

class AttentionPlacesTest : public KernelTest {
 protected:
  Problem problem(const AttentionShape& s, DType dtype, double scale = 1) {
    const std::int64_t width = s.heads * s.head_dim, kv_width = s.kv_heads * s.head_dim;
    return {s, random(s.seq, width, dtype, scale), random(s.seq, kv_width, dtype, scale),
            random(s.seq, kv_width, dtype), random(s.seq, width, dtype)};
  }
  static Results no_results(const Problem& p) {
    return {Matrix{p.q.rows, p.q.cols}, Matrix{p.shape.heads, p.shape.seq},
            Matrix{p.q.rows, p.q.cols}, Matrix{p.k.rows, p.k.cols}, Matrix{p.k.rows, p.k.cols}};
  }

  /// What each part gets from every part in turn, starting with its own; sums are f32.
  Results in_parts(const Problem& p, const std::vector<Places>& parts, DType dtype,
                   const Runner& run_op) {
    struct Part {
      Tensor q, k, v, d_o, o, lse, dq, dk, dv;
    };
    const std::int64_t first_buffer_gap = 5;
    std::vector<Part> held;
    for (const Places& places : parts) {
      const auto input = [&](const Matrix& whole) {
        return place(rows_at(whole, places), dtype, first_buffer_gap);
      };
      const auto sums = [&](const Matrix& whole) {
        return empty(places.count(), whole.cols, DType::f32, first_buffer_gap);
      };
      held.push_back({input(p.q), input(p.k), input(p.v), input(p.d_o), sums(p.q),
                      empty(p.shape.heads, places.count(), DType::f32), sums(p.q), sums(p.k),
                      sums(p.v)});
    }
    const auto for_steps = [&](const auto& step) {
      for (std::size_t i = 0; i < parts.size(); ++i)
        for (std::size_t n = 0; n < parts.size(); ++n) {
          const std::size_t j = (i + n) % parts.size();
          AttentionShape shape = p.shape;
          shape.seq = parts[i].count();
          shape.queries = parts[i];
          shape.keys = parts[j];
          step(held[i], held[j], shape, n > 0);
        }
    };
    for_steps([&](const Part& mine, const Part& other, const AttentionShape& shape, bool more) {
      run_op(Attention{mine.q, other.k, other.v, mine.o, mine.lse, shape, more});
    });
    for (const Part& part : held)  // every step adds to sums that begin at zero
      for (const Tensor& sum : {part.dq, part.dk, part.dv}) run_op(Fill{sum, 0});
    for_steps([&](const Part& mine, const Part& other, const AttentionShape& shape, bool) {
      run_op(AttentionBackward{mine.q, other.k, other.v, mine.o, mine.lse, mine.d_o, mine.dq,
                               other.dk, other.dv, shape, true});
    });
    Results results = no_results(p);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      put_rows(read(held[i].o), parts[i], results.o);
      put_rows(read(held[i].dq), parts[i], results.dq);
      put_rows(read(held[i].dk), parts[i], results.dk);
      put_rows(read(held[i].dv), parts[i], results.dv);
      const Matrix lse = read(held[i].lse);
      for (std::int64_t h = 0; h < lse.rows; ++h)
        for (std::int64_t r = 0; r < lse.cols; ++r) results.lse(h, parts[i][r]) = lse(h, r);
      for (const Tensor& written : {held[i].o, held[i].dq, held[i].dk, held[i].dv})
        EXPECT_TRUE(gap_untouched(written));
    }
    return results;
  }

  /// All at once, results of `dtype`.
  Results at_once(const Problem& p, DType dtype, DType result_dtype, const Runner& run_op) {
    const auto result = [&](const Matrix& like) {
      return empty(like.rows, like.cols, result_dtype, 3);
    };
    const Attention forward{place(p.q, dtype),
                            place(p.k, dtype),
                            place(p.v, dtype),
                            result(p.q),
                            empty(p.shape.heads, p.shape.seq, DType::f32),
                            p.shape};
    run_op(forward);
    const AttentionBackward backward{
        forward.q,           forward.k,   forward.v,   forward.o,   forward.lse,
        place(p.d_o, dtype), result(p.q), result(p.k), result(p.v), p.shape};
    run_op(backward);
    return {read(forward.o), read(forward.lse), read(backward.dq), read(backward.dk),
            read(backward.dv)};
  }
  Results right(const Problem& p, DType dtype) {
    return at_once(p, dtype, DType::f32, run_reference_);
  }

  Runner run_kernel_ = [this](const Op& op) { run(op); };
  Runner run_reference_ = [](const Op& op) {
    if (const auto* forward = std::get_if<Attention>(&op)) reference::run(*forward);
    if (const auto* backward = std::get_if<AttentionBackward>(&op)) reference::run(*backward);
    if (const auto* fill = std::get_if<Fill>(&op)) reference::run(*fill);
  };
};

/// Rows without keys have -inf in both, which no norm of a difference bears.
void expect_close(const Results& results, const Results& right, double tolerance,
                  const std::string& what) {
  const auto expected = right.all();
  const auto found = results.all();
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& [name, values] = found[i];
    const Matrix& reference = *expected[i].second;
    Matrix difference = *values, size = reference;
    for (std::size_t e = 0; e < reference.values.size(); ++e) {
      const double value = values->values[e], wanted = reference.values[e];
      ASSERT_EQ(std::isfinite(value), std::isfinite(wanted)) << what << ' ' << name << ' ' << e;
      if (std::isfinite(wanted)) continue;
      if (std::isnan(wanted))
        ASSERT_TRUE(std::isnan(value)) << what << ' ' << name << ' ' << e << ' ' << value;
      else
        ASSERT_EQ(value, wanted) << what << ' ' << name << ' ' << e;
      difference.values[e] = size.values[e] = 0;
    }
    EXPECT_LE(relative_error(difference, size), tolerance) << what << ' ' << name;
  }
}

const std::vector<std::int64_t> no_starts{}, packed{0, 100, 101, 110, 400}, one_each{0, 1, 2};

TEST_F(AttentionPlacesTest, MasksAtOnceAndInPartsAgreeWithTheReference) {
  for (const DType dtype : dtypes)
    for (const std::int64_t window : {0, 1, 70})
      for (const auto& starts : {no_starts, packed})
        for (const bool causal : {true, false}) {
          if (dtype == DType::bf16 && !causal) continue;
          AttentionShape shape{1, 540, 2, 1, 8, causal, window};
          shape.starts = starts;
          const Problem p = problem(shape, dtype);
          const Results wanted = right(p, dtype);
          const std::string mask = std::string(name_of(dtype)) + (causal ? " causal" : " full") +
                                   " window " + std::to_string(window) + " sequences " +
                                   std::to_string(starts.size());
          // With window 1 the probabilities are constant: dq and dk are all rounding.
          const double limit = tolerance(dtype);
          if (window != 1) expect_close(at_once(p, dtype, dtype, run_kernel_), wanted, limit, mask);
          for (const char* order : {"contiguous", "zigzag", "striped"})
            for (const std::int64_t parts : {2, 3}) {
              const std::string what = mask + ' ' + order + ' ' + std::to_string(parts);
              const std::vector<Places> held = parts_of(order, shape.seq, parts);
              const Results got = in_parts(p, held, dtype, run_kernel_);
              if (window == 1) {
                EXPECT_LE(relative_error(got.o, wanted.o), limit) << what;
                EXPECT_LE(relative_error(got.dv, wanted.dv), limit) << what;
              } else {
                expect_close(got, wanted, limit, what);
              }
            }
        }
}

TEST_F(AttentionPlacesTest, ReferenceInPartsIsTheReferenceAtOnce) {
  AttentionShape shape{1, 96, 4, 2, 6, true, 31};
  shape.starts = packed;
  const Problem p = problem(shape, DType::f32);
  for (const char* order : {"contiguous", "zigzag", "striped"})
    for (const std::int64_t parts : {2, 3, 4})
      expect_close(in_parts(p, parts_of(order, 96, parts), DType::f32, run_reference_),
                   right(p, DType::f32), 1e-6, order + std::to_string(parts));
}

TEST_F(AttentionPlacesTest, QueriesThatSeeNothingGetZeros) {
  // The keys stand after all queries but the last two.
  AttentionShape shape{2, 5, 2, 1, 4, true};
  shape.queries = {{Places::Run{0, 5, 1}, {}}};
  shape.keys = {{Places::Run{3, 300, 1}, {}}};
  for (const DType dtype : dtypes) {
    const Attention op{place(random(10, 8, dtype), dtype),
                       place(random(600, 4, dtype), dtype),
                       place(random(600, 4, dtype), dtype),
                       empty(10, 8, dtype),
                       empty(4, 5, DType::f32),
                       shape};
    run(op);
    const AttentionBackward backward{op.q,
                                     op.k,
                                     op.v,
                                     op.o,
                                     op.lse,
                                     place(random(10, 8, dtype), dtype),
                                     empty(10, 8, dtype),
                                     empty(600, 4, dtype),
                                     empty(600, 4, dtype),
                                     shape};
    run(backward);
    const Matrix o = read(op.o), lse = read(op.lse), dq = read(backward.dq), dk = read(backward.dk),
                 dv = read(backward.dv);
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t t = 0; t < 3; ++t)
        for (std::int64_t c = 0; c < 8; ++c) {
          EXPECT_EQ(o(b * 5 + t, c), 0);
          EXPECT_EQ(dq(b * 5 + t, c), 0);
        }
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t t = 0; t < 3; ++t) EXPECT_EQ(lse(b * 2 + h, t), -infinity);
        EXPECT_TRUE(std::isfinite(lse(b * 2 + h, 3)));
      }
      for (std::int64_t key = 2; key < 300; ++key)
        for (std::int64_t c = 0; c < 4; ++c) {
          EXPECT_EQ(dk(b * 300 + key, c), 0);
          EXPECT_EQ(dv(b * 300 + key, c), 0);
        }
    }
  }
}

TEST_F(AttentionPlacesTest, InfinitiesAndNaNsComeOutAsDefined) {
  const std::array<const char*, 3> orders{"contiguous", "zigzag", "striped"};
  std::size_t turn = 0;
  for (const std::int64_t window : {0, 40}) {
    const AttentionShape shape{1, 330, 2, 1, 4, true, window};
    for (const double bad : {infinity, -infinity, not_a_number})
      for (const int input : {0, 1, 2, 3})
        for (const std::int64_t row : {0, 150, 300, 329}) {
          Problem p = problem(shape, DType::f32);
          const std::array<Matrix*, 4> inputs{&p.q, &p.k, &p.v, &p.d_o};
          (*inputs[static_cast<std::size_t>(input)])(row, 2) = bad;
          const std::string what = std::to_string(bad) + " in input " + std::to_string(input) +
                                   " row " + std::to_string(row) + " window " +
                                   std::to_string(window);
          const Results wanted = right(p, DType::f32);
          expect_close(at_once(p, DType::f32, DType::f32, run_kernel_), wanted, 1e-5, what);
          const std::string order = orders[turn++ % 3];
          expect_close(in_parts(p, parts_of(order, 330, 3), DType::f32, run_kernel_), wanted, 1e-5,
                       what + ' ' + order);
        }
  }
}

TEST_F(AttentionPlacesTest, RowsOfMinusInfinityAreAsMasked) {
  // Scores of all keys are -inf: q is positive, and a column of k is -inf.
  Problem p = problem({1, 40, 1, 1, 4, true}, DType::f32);
  for (double& value : p.q.values) value = 1;
  for (std::int64_t t = 0; t < 40; ++t) p.k(t, 1) = -infinity;
  const Results got = at_once(p, DType::f32, DType::f32, run_kernel_);
  EXPECT_EQ(got.o.values, std::vector<double>(160, 0));
  EXPECT_EQ(got.lse.values, std::vector<double>(40, -infinity));
  EXPECT_EQ(got.dv.values, std::vector<double>(160, 0));
  expect_close(got, right(p, DType::f32), 1e-5, "at once");
  expect_close(in_parts(p, parts_of("zigzag", 40, 2), DType::f32, run_kernel_),
               right(p, DType::f32), 1e-5, "in parts");
}

TEST_F(AttentionPlacesTest, LargeLogitsNeitherOverflowNorGiveNaN) {
  const AttentionShape shape{1, 300, 1, 1, 4, true};
  for (const double sign : {1.0, -1.0}) {
    // Scores are exact: multiples of 5000, all negative for the second sign.
    Problem p = problem(shape, DType::f32);
    p.q = random_integers(300, 4, 1).map([](double x) { return 1e4 * std::abs(x); });
    p.k = random_integers(300, 4, 1).map([&](double x) { return sign * std::abs(x); });
    const Results wanted = right(p, DType::f32);
    expect_close(at_once(p, DType::f32, DType::f32, run_kernel_), wanted, 2e-3, "at once");
    for (const char* order : {"contiguous", "zigzag", "striped"})
      expect_close(in_parts(p, parts_of(order, 300, 3), DType::f32, run_kernel_), wanted, 2e-3,
                   order);
  }
  // Entries of 1e4 on both sides: scores of 1e8, of which f32 keeps steps of 8.
  for (const DType dtype : dtypes) {
    const Problem p = problem(shape, dtype, 1e4);
    double highest = 0;
    for (const double value : p.v.values) highest = std::max(highest, std::abs(value));
    for (const Results& got : {at_once(p, dtype, dtype, run_kernel_),
                               in_parts(p, parts_of("striped", 300, 3), dtype, run_kernel_)}) {
      for (const auto& [name, values] : got.all())
        for (const double value : values->values) ASSERT_TRUE(std::isfinite(value)) << name;
      for (const double value : got.o.values) ASSERT_LE(std::abs(value), 1.01 * highest);
    }
  }
}

TEST_F(AttentionPlacesTest, MaskedBlocksAreNotComputed) {
  // Seen in the calls between blocks of both passes.
  const auto blocks = [&](const AttentionShape& shape) {
    const Problem p = problem(shape, DType::f32);
    hook_.wants = true;
    hook_.num_calls = 0;
    (void)at_once(p, DType::f32, DType::f32, run_kernel_);
    return hook_.num_calls;
  };
  AttentionShape shape{1, 4096, 1, 1, 4, false};
  const int all = blocks(shape);
  shape.causal = true;
  EXPECT_LE(blocks(shape), all * 7 / 10);
  shape.window = 64;
  EXPECT_LE(blocks(shape), all * 4 / 10);
  // Four sequences of whole blocks.
  const std::vector<std::int64_t> quarters{0, 1024, 2048, 3072};
  shape = {1, 4096, 1, 1, 4, false};
  shape.starts = quarters;
  EXPECT_EQ(blocks(shape) * 4, all);
  // No key at or before a query.
  shape = {1, 4096, 1, 1, 4, true};
  shape.queries = Places::all(4096);
  shape.keys = {{Places::Run{4096, 4096, 1}, {}}};
  EXPECT_EQ(blocks(shape), 0);
}

TEST_F(AttentionPlacesTest, ScratchStaysSmallAtAnyLength) {
  const std::int64_t seq = 65536;
  const AttentionShape shape{1, seq, 4, 4, 64, true};
  for (const DType dtype : dtypes) {
    const Tensor rows{1, dtype, {seq, 256}, 0, 256, nullptr};
    const Tensor lse{2, DType::f32, {4, seq}, 0, seq, nullptr};
    const Attention forward{rows, rows, rows, rows, lse, shape};
    const AttentionBackward backward{rows, rows, rows, rows, lse, rows, rows, rows, rows, shape};
    // One block is kept for the larger of the two.
    for (const Op& op : {Op{forward}, Op{backward}})
      EXPECT_LE(workspace_bytes(op, 1) + lse.bytes(), std::int64_t{64} << 20)
          << name_of(op) << ' ' << name_of(dtype);
  }
}

TEST_F(AttentionPlacesTest, RopeTurnsByPlace) {
  const std::int64_t seq = 24;
  const Matrix x = random(2 * seq, 12, DType::f32);
  Rope whole{place(x, DType::f32), seq, 2, 6, 100.0F, false};
  for (const auto& starts : {no_starts, std::vector<std::int64_t>{0, 5, 6}}) {
    whole.x = place(x, DType::f32);
    whole.starts = starts;
    run(whole);
    const Matrix turned = read(whole.x);
    Rope reference = whole;
    reference.x = place(x, DType::f32);
    reference::run(reference);
    EXPECT_LE(relative_error(turned, read(reference.x)), 1e-6);
    for (const char* order : {"contiguous", "zigzag", "striped"})
      for (const Places& held : parts_of(order, seq, 3)) {
        Places both = held;  // of the second sequence the same places
        Matrix rows{2 * held.count(), 12}, wanted = rows;
        for (std::int64_t r = 0; r < rows.rows; ++r)
          for (std::int64_t c = 0; c < 12; ++c) {
            const std::int64_t token = r / held.count() * seq + held[r % held.count()];
            rows(r, c) = x(token, c);
            wanted(r, c) = turned(token, c);
          }
        Rope part = whole;
        part.x = place(rows, DType::f32, 4);
        part.seq = held.count();
        part.places = both;
        run(part);
        EXPECT_EQ(read(part.x).values, wanted.values) << order;
        EXPECT_TRUE(gap_untouched(part.x));
        part.x = place(rows, DType::f32);
        reference::run(part);
        EXPECT_LE(relative_error(read(part.x), wanted), 1e-6) << order;
      }
  }
  // A place counts from the start of its packed sequence.
  Rope one{place(rows_at(x, {{Places::Run{0, 1, 1}, {}}}), DType::f32), 1, 2, 6, 100.0F, false};
  const std::vector<std::int64_t> starts{0, 7};
  one.places = {{Places::Run{7, 1, 1}, {}}};
  one.starts = starts;
  const Matrix before = read(one.x);
  run(one);
  EXPECT_EQ(read(one.x).values, before.values);
}

}  // namespace
}  // namespace shardmark
