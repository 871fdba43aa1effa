#include "layers/values.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace shardmark {
namespace {

std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

std::uint64_t element_hash(std::uint64_t key, std::int64_t index) {
  return mix(key + static_cast<std::uint64_t>(index) * 0x9e3779b97f4a7c15ULL);
}

/// Uniform in [0, 1) with 24 bits, exact in f32.
float uniform(std::uint64_t hash) { return static_cast<float>(hash >> 40) * 0x1p-24F; }

/// -unit, 0 or unit; nonzero with the given probability.
float sparse(std::uint64_t hash, double unit, double probability) {
  const double u = uniform(hash);
  if (u >= probability) return 0.0F;
  return static_cast<float>((hash & 1) != 0 ? unit : -unit);
}

/// Attention queries read 2^14 from the constant column: a step of one position moves a logit by
/// 2^14 / sqrt(head_dim), far beyond what the other dims of a head can add.
constexpr float query_scale = 16384.0F;
constexpr std::int64_t position_high = 0, position_low = 1, constant = 2, special_columns = 3;

}  // namespace

std::uint64_t Values::key(const std::string& name) const {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return mix(seed_ ^ hash);
}

float Values::value(std::uint64_t key, const Init& init, const Shape& global, std::int64_t row,
                    std::int64_t col) const {
  const bool is_index = init.exact == ExactRule::ids || init.exact == ExactRule::row_index;
  if (kind_ == Kind::exact || is_index) return exact(key, init, global, row, col);
  const float u = uniform(element_hash(key, row * global.cols() + col));
  return static_cast<float>(init.center) + static_cast<float>(init.scale) * (2 * u - 1);
}

float Values::exact(std::uint64_t key, const Init& init, const Shape& global, std::int64_t row,
                    std::int64_t col) const {
  const std::uint64_t hash = element_hash(key, row * global.cols() + col);
  const bool vector = global.num_dims() == 1;
  const double per_column =
      vector ? 0.5 : init.nonzeros / static_cast<double>(std::max<std::int64_t>(1, global.rows()));
  switch (init.exact) {
    case ExactRule::zero:
      return 0.0F;
    case ExactRule::one:
      return 1.0F;
    case ExactRule::sparse:
      return sparse(hash, init.unit, per_column);
    case ExactRule::positions: {
      const std::int64_t position = row % init.limit;
      if (col == position_high) return static_cast<float>(position / 256 * 256);
      if (col == position_low) return static_cast<float>(position % 256);
      return col == constant ? 1.0F : sparse(hash, 1.0, 0.5);
    }
    case ExactRule::attention_query:
      if (row < special_columns)
        return row == constant && col % init.limit < 2 ? query_scale : 0.0F;
      return col % init.limit < 2 ? 0.0F : sparse(hash, 1.0, per_column);
    case ExactRule::attention_key:
      if (row < special_columns) return row < constant && col % init.limit == row ? 1.0F : 0.0F;
      return col % init.limit < 2 ? 0.0F : sparse(hash, 1.0, per_column);
    case ExactRule::attention_value:
      return row < special_columns ? 0.0F : sparse(hash, 1.0, per_column);
    case ExactRule::gradient_rows: {
      const std::int64_t every = std::max<std::int64_t>(1, (global.rows() + 15) / 16);
      return row % every == every / 2 ? sparse(hash, 1.0, 0.25) : 0.0F;
    }
    case ExactRule::ids:
      return static_cast<float>(hash % static_cast<std::uint64_t>(init.limit));
    case ExactRule::row_index:
      return static_cast<float>(init.center) +
             static_cast<float>((vector ? col : row) % init.limit);
  }
  return 0.0F;
}

std::string Values::formula(const Init& init) const {
  static constexpr std::array<std::string_view, 10> rules{"0",
                                                          "1",
                                                          "sparse +-unit",
                                                          "position features",
                                                          "attention query features",
                                                          "attention key features",
                                                          "sparse +-1, position rows 0",
                                                          "sparse +-1 in at most 16 rows",
                                                          "hash % limit",
                                                          "row % limit"};
  const auto rule = rules[static_cast<std::size_t>(init.exact)];
  if (init.exact == ExactRule::ids || init.exact == ExactRule::row_index)
    return message(rule, ", limit ", init.limit);
  if (kind_ == Kind::exact) return message("exact data: ", rule, ", unit ", init.unit);
  return message("uniform: ", init.center, " + ", init.scale,
                 " * (2u - 1), u from splitmix64(seed ", seed_, ", tensor name, element index)");
}

}  // namespace shardmark
