#include "core/cpu/onednn.hpp"

#include "core/cpu/matmul.hpp"
#include "core/error.hpp"

namespace shardmark::kernels {
namespace {

using Memory = dnnl::memory;
using Layout = dnnl::memory::desc;

Memory::data_type library_type(DType dtype) {
  SHARDMARK_CHECK(dtype != DType::i32, "matmul of i32");
  return dtype == DType::f32 ? Memory::data_type::f32 : Memory::data_type::bf16;
}

dnnl::matmul::primitive_desc describe(const dnnl::engine& engine, const Layout& a, const Layout& b,
                                      const Layout& bias, const Layout& c, bool accumulate) {
  dnnl::primitive_attr attributes;
  if (accumulate) {
    dnnl::post_ops post;
    post.append_sum(1.0F);
    attributes.set_post_ops(post);
  }
#if DNNL_VERSION_MAJOR >= 3
  if (bias.get_size() == 0) return {engine, a, b, c, attributes};
  return {engine, a, b, bias, c, attributes};
#else
  if (bias.get_size() == 0) return {dnnl::matmul::desc{a, b, c}, attributes, engine};
  return {dnnl::matmul::desc{a, b, bias, c}, attributes, engine};
#endif
}

}  // namespace

Layout layout_of(std::int64_t rows, std::int64_t cols, DType dtype, std::int64_t stride,
                 bool transposed) {
  const Memory::dims strides = transposed ? Memory::dims{1, stride} : Memory::dims{stride, 1};
  return Layout{{rows, cols}, library_type(dtype), strides};
}

const Layout& OneDnn::packed_layout(std::int64_t k, std::int64_t n, DType dtype) {
  const auto key = std::make_tuple(k, n, dtype);
  const auto known = packed_layouts_.find(key);
  if (known != packed_layouts_.end()) return known->second;
  constexpr std::int64_t typical_rows = 256;
  const Layout any{{k, n}, library_type(dtype), Memory::format_tag::any};
  const Layout a = layout_of(typical_rows, k, dtype, k);
  const Layout c = layout_of(typical_rows, n, dtype, n);
  return packed_layouts_[key] = describe(engine_, a, any, Layout{}, c, false).weights_desc();
}

bool OneDnn::has_panels(std::int64_t k, std::int64_t n, std::int64_t columns, DType dtype) {
  return n % columns == 0 && packed_layout(k, n, dtype).submemory_desc({k, columns}, {0, 0}) ==
                                 packed_layout(k, columns, dtype);
}

OneDnn::Product& OneDnn::product(const Problem& p) {
  const auto known = products_.find(p);
  if (known != products_.end()) return known->second;
  const Layout a = layout_of(p.m, p.k, p.dtype, p.k);
  const Layout b = p.b_packed ? packed_layout(p.k, p.n, p.dtype)
                              : layout_of(p.k, p.n, p.dtype, p.b_stride, p.b_transposed);
  const Layout c = layout_of(p.m, p.n, p.c_dtype, p.c_stride);
  const Layout bias = p.has_bias ? layout_of(1, p.n, p.dtype, p.n) : Layout{};
  const auto description = describe(engine_, a, b, bias, c, p.accumulate);
  Product& made = products_[p];
  made.primitive = dnnl::matmul{description};
  made.name = description.impl_info_str();
  made.a = Memory{a, engine_, DNNL_MEMORY_NONE};
  made.b = Memory{b, engine_, DNNL_MEMORY_NONE};
  made.c = Memory{c, engine_, DNNL_MEMORY_NONE};
  made.arguments = {{DNNL_ARG_SRC, made.a}, {DNNL_ARG_WEIGHTS, made.b}, {DNNL_ARG_DST, made.c}};
  if (p.has_bias) {
    made.bias = Memory{bias, engine_, DNNL_MEMORY_NONE};
    made.arguments.emplace(DNNL_ARG_BIAS, made.bias);
  }
  return made;
}

const char* OneDnn::multiply(const Problem& problem, const Operands& operands) {
  Product& call = product(problem);
  call.a.set_data_handle(operands.a);
  call.b.set_data_handle(operands.b);
  call.c.set_data_handle(operands.c);
  if (problem.has_bias) call.bias.set_data_handle(operands.bias);
  call.primitive.execute(stream_, call.arguments);
  stream_.wait();
  return call.name.c_str();
}

void OneDnn::convert(const Layout& from, const std::byte* from_data, const Layout& to,
                     std::byte* to_data) {
  Memory source{from, engine_, const_cast<std::byte*>(from_data)};
  Memory target{to, engine_, to_data};
  dnnl::reorder{source, target}.execute(stream_, source, target);
  stream_.wait();
}

void sgemm(const SgemmSizes& sizes, const SgemmOperand& a, const SgemmOperand& b,
           const SgemmResult& c) {
  const dnnl_status_t status = dnnl_sgemm(
      a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', sizes.m, sizes.n, sizes.k, sizes.alpha,
      a.data, a.stride, b.data, b.stride, sizes.accumulate ? 1.0F : 0.0F, c.data, c.stride);
  SHARDMARK_CHECK(status == dnnl_success, "dnnl_sgemm returned ", static_cast<int>(status));
}

}  // namespace shardmark::kernels
