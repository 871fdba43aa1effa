#pragma once

// Everything that differs between oneDNN 2.x and 3.x is behind this header.

#include "core/types.hpp"

#include <oneapi/dnnl/dnnl.hpp>

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>

namespace shardmark::kernels {

/// A matrix in place: rows x cols, rows `stride` elements apart, or the transposition of such.
[[nodiscard]] dnnl::memory::desc layout_of(std::int64_t rows, std::int64_t cols, DType dtype,
                                           std::int64_t stride, bool transposed = false);

/// Matmul and reorder primitives of one rank, made once per problem.
class OneDnn {
 public:
  using Layout = dnnl::memory::desc;

  /// c_mn = a_mk b_kn [+ bias_n] [+ c]; a has dense rows, b is packed or as its stride says.
  struct Problem {
    std::int64_t m, n, k, b_stride, c_stride;
    DType dtype, c_dtype;
    bool b_transposed, b_packed, has_bias, accumulate;
    auto operator<=>(const Problem&) const = default;
  };
  struct Operands {
    std::byte *a, *b, *bias, *c;
  };

  /// The layout oneDNN likes best for b; the same for every m.
  [[nodiscard]] const Layout& packed_layout(std::int64_t k, std::int64_t n, DType dtype);
  /// True if the packed layout of n columns is that of `columns` columns, repeated.
  [[nodiscard]] bool has_panels(std::int64_t k, std::int64_t n, std::int64_t columns, DType dtype);
  /// Returns the implementation's name, which lives as long as this object.
  const char* multiply(const Problem& problem, const Operands& operands);
  /// Copies a matrix into another layout.
  void convert(const Layout& from, const std::byte* from_data, const Layout& to,
               std::byte* to_data);

 private:
  struct Product {
    dnnl::matmul primitive;
    dnnl::memory a, b, bias, c;
    std::unordered_map<int, dnnl::memory> arguments;
    std::string name;
  };
  Product& product(const Problem& problem);

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<Problem, Product> products_;
  std::map<std::tuple<std::int64_t, std::int64_t, DType>, Layout> packed_layouts_;
};

}  // namespace shardmark::kernels
