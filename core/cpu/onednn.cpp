#include "core/cpu/onednn.hpp"

#include "core/error.hpp"

#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <string>
#include <unordered_map>

namespace shardmark::kernels {
namespace {

using Memory = dnnl::memory;
using Layout = dnnl::memory::desc;

// Packing b costs as much as about 90 rows of the product; with at least this many rows it is won
// back, because plain layouts are repacked inside oneDNN, at times badly (49 to 97 % of the speed
// with packed weights for 1024 x 2048 x 6144 and its neighbours, f32, AVX-512, oneDNN 2.6.3).
constexpr std::int64_t min_rows_to_pack = 64;
// Rows of op(a) put in order at a time, and rows of c per tile while communication is in flight:
// a block of 256 rows stays in the level 2 cache, fewer would read b too often (64 x 64 tiles reach
// 80 % of the speed of one call, 256 x 64 tiles 96 %).
constexpr std::int64_t rows_per_block = 256;
// Tiles are cut between columns as well, where packed b can be. 40 MFLOP are about 0.25 ms.
constexpr std::int64_t columns_per_panel = 64;
constexpr double flops_per_tile = 40e6;

std::int64_t round_up_64(std::int64_t value) { return (value + 63) / 64 * 64; }

/// oneDNN 2.6 runs its fast kernels on dense row-major a and c only. So a transposed or strided a
/// is put in order block by block, which costs 1 ms per 8 MiB and makes x^T dy the fastest of the
/// three products of a linear layer; b is packed; a strided c takes the general kernel.
struct Plan {
  std::int64_t m, n, k;
  bool gathers_a, packs_b;
};
/// Columns of a tile of c that cut packed b between its panels; n where it cannot be cut.
std::int64_t tile_columns(const Plan& plan) {
  if (!plan.packs_b || plan.n % columns_per_panel != 0) return plan.n;
  const std::int64_t rows = std::min(plan.m, rows_per_block);
  const double flops_per_panel =
      2.0 * static_cast<double>(rows) * static_cast<double>(plan.k) * columns_per_panel;
  std::int64_t panels =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(flops_per_tile / flops_per_panel));
  while (plan.n % (panels * columns_per_panel) != 0) --panels;
  return std::min(plan.n, panels * columns_per_panel);
}
std::int64_t tile_bytes(const Plan& plan, DType c_dtype) {
  const std::int64_t columns = tile_columns(plan);
  if (columns == plan.n) return 0;
  return round_up_64(std::min(plan.m, rows_per_block) * columns * size_of(c_dtype));
}
Plan plan_of(const Matmul& op) {
  const std::int64_t k = op.transpose_a ? op.a.rows() : op.a.cols();
  const bool dense_a = !op.transpose_a && op.a.contiguous();
  return {op.c.rows(), op.c.cols(), k, !dense_a,
          op.c.rows() >= min_rows_to_pack && op.c.contiguous()};
}

std::int64_t gathered_bytes(const Plan& plan, DType dtype) {
  if (!plan.gathers_a) return 0;
  return round_up_64(std::min(plan.m, rows_per_block) * plan.k * size_of(dtype));
}

Memory::data_type library_type(DType dtype) {
  SHARDMARK_CHECK(dtype != DType::i32, "matmul of i32");
  return dtype == DType::f32 ? Memory::data_type::f32 : Memory::data_type::bf16;
}
/// op(tensor) as a rows x cols matrix in place.
Layout layout_of(std::int64_t rows, std::int64_t cols, DType dtype, std::int64_t stride,
                 bool transposed = false) {
  const Memory::dims strides = transposed ? Memory::dims{1, stride} : Memory::dims{stride, 1};
  return Layout{{rows, cols}, library_type(dtype), strides};
}

/// Identifies a primitive; `packed` means that b has the packed layout of (k, n, dtype).
struct Problem {
  std::int64_t m, n, k, b_stride, c_stride;
  DType dtype, c_dtype;
  bool b_transposed, packed, bias, accumulate;
  auto operator<=>(const Problem&) const = default;
};

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

struct Product {
  dnnl::matmul primitive;
  Memory a, b, bias, c;
  std::unordered_map<int, Memory> arguments;
  std::string name;
};

/// A packed b as it lies in the scratch block.
struct Packed {
  const std::byte* data{nullptr};
  std::int64_t k{0}, n{0}, stride{0}, generation{-1};
  DType dtype{DType::f32};
  bool transposed{false};
  bool operator==(const Packed&) const = default;
};

/// One call: dense rows of a, b as it is or packed, and the block of c they give.
struct Operands {
  std::byte *a, *b, *bias;
  Tensor c;
};

}  // namespace

class MatmulRunner::Library {
 public:
  const char* run(const Matmul& op, const Context& context);

 private:
  const Layout& packed_layout(std::int64_t k, std::int64_t n, DType dtype);
  Product& product(const Problem& problem);
  void convert(const Layout& from, const std::byte* from_data, const Layout& to,
               std::byte* to_data);
  [[nodiscard]] bool can_cut(const Plan& plan, const Layout& layout, DType dtype);
  bool prepare_scratch(const Matmul& op, const Plan& plan, const Layout& layout, Scratch& scratch);
  const char* multiply(const Matmul& op, const Plan& plan, const Operands& operands);
  const char* multiply_tiles(const Matmul& op, const Plan& plan, const Operands& operands,
                             std::int64_t panel_bytes, std::byte* tile, const Context& context);

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<Problem, Product> products_;
  std::map<std::tuple<std::int64_t, std::int64_t, DType>, Layout> packed_layouts_;
  Packed packed_;
};

const Layout& MatmulRunner::Library::packed_layout(std::int64_t k, std::int64_t n, DType dtype) {
  const auto key = std::make_tuple(k, n, dtype);
  const auto known = packed_layouts_.find(key);
  if (known != packed_layouts_.end()) return known->second;
  const auto type = library_type(dtype);
  const Layout any{{k, n}, type, Memory::format_tag::any};
  const Layout a = layout_of(rows_per_block, k, dtype, k);
  const Layout c = layout_of(rows_per_block, n, dtype, n);
  return packed_layouts_[key] = describe(engine_, a, any, Layout{}, c, false).weights_desc();
}

Product& MatmulRunner::Library::product(const Problem& p) {
  const auto known = products_.find(p);
  if (known != products_.end()) return known->second;
  const Layout a = layout_of(p.m, p.k, p.dtype, p.k);
  const Layout b = p.packed ? packed_layout(p.k, p.n, p.dtype)
                            : layout_of(p.k, p.n, p.dtype, p.b_stride, p.b_transposed);
  const Layout c = layout_of(p.m, p.n, p.c_dtype, p.c_stride);
  const Layout bias = p.bias ? layout_of(1, p.n, p.dtype, p.n) : Layout{};
  const auto description = describe(engine_, a, b, bias, c, p.accumulate);
  Product& made = products_[p];
  made.primitive = dnnl::matmul{description};
  made.name = description.impl_info_str();
  made.a = Memory{a, engine_, DNNL_MEMORY_NONE};
  made.b = Memory{b, engine_, DNNL_MEMORY_NONE};
  made.c = Memory{c, engine_, DNNL_MEMORY_NONE};
  made.arguments = {{DNNL_ARG_SRC, made.a}, {DNNL_ARG_WEIGHTS, made.b}, {DNNL_ARG_DST, made.c}};
  if (p.bias) {
    made.bias = Memory{bias, engine_, DNNL_MEMORY_NONE};
    made.arguments.emplace(DNNL_ARG_BIAS, made.bias);
  }
  return made;
}

void MatmulRunner::Library::convert(const Layout& from, const std::byte* from_data,
                                    const Layout& to, std::byte* to_data) {
  Memory source{from, engine_, const_cast<std::byte*>(from_data)};
  Memory target{to, engine_, to_data};
  dnnl::reorder{source, target}.execute(stream_, source, target);
}

/// Packed b can be cut into panels if a panel packed alone looks like a part of the whole.
bool MatmulRunner::Library::can_cut(const Plan& plan, const Layout& layout, DType dtype) {
  const std::int64_t columns = tile_columns(plan);
  return columns < plan.n &&
         layout.submemory_desc({plan.k, columns}, {0, 0}) == packed_layout(plan.k, columns, dtype);
}

/// Makes room for the packed b, rows of a and a tile of c; true if b lies there packed already.
bool MatmulRunner::Library::prepare_scratch(const Matmul& op, const Plan& plan,
                                            const Layout& layout, Scratch& scratch) {
  const auto packed_bytes = plan.packs_b ? static_cast<std::int64_t>(layout.get_size()) : 0;
  const std::int64_t bytes =
      round_up_64(packed_bytes) + gathered_bytes(plan, op.a.dtype) + tile_bytes(plan, op.c.dtype);
  Packed wanted{op.b.data,  plan.k,        plan.n, op.b.row_stride, scratch.generation(),
                op.b.dtype, op.transpose_b};
  if (plan.packs_b && op.reuse_b && packed_ == wanted && scratch.bytes() >= bytes) return true;
  (void)scratch.take(bytes);
  wanted.generation = plan.packs_b ? scratch.generation() : -1;
  packed_ = wanted;
  return false;
}

const char* MatmulRunner::Library::multiply(const Matmul& op, const Plan& plan,
                                            const Operands& operands) {
  const Tensor& c = operands.c;
  const std::int64_t c_stride = c.contiguous() ? c.cols() : c.row_stride;
  Product& call = product({c.rows(), c.cols(), plan.k, plan.packs_b ? 0 : op.b.row_stride, c_stride,
                           op.a.dtype, c.dtype, !plan.packs_b && op.transpose_b, plan.packs_b,
                           operands.bias != nullptr, op.accumulate});
  call.a.set_data_handle(operands.a);
  call.b.set_data_handle(operands.b);
  call.c.set_data_handle(c.data);
  if (operands.bias != nullptr) call.bias.set_data_handle(operands.bias);
  call.primitive.execute(stream_, call.arguments);
  return call.name.c_str();
}

/// The same product panel by panel of b, each into a dense tile first: oneDNN's fast kernels do not
/// write into a column block.
const char* MatmulRunner::Library::multiply_tiles(const Matmul& op, const Plan& plan,
                                                  const Operands& operands,
                                                  std::int64_t panel_bytes, std::byte* tile,
                                                  const Context& context) {
  const char* name = "";
  const std::int64_t columns = tile_columns(plan);
  Operands part = operands;
  part.c.shape = {operands.c.rows(), columns};
  part.c.row_stride = columns;
  part.c.data = tile;
  for (std::int64_t first = 0; first < plan.n; first += columns) {
    if (first > 0 && context.hook.wants_tiles()) context.hook.between_tiles();
    const Tensor target = operands.c.column_block(first, columns);
    part.b = operands.b + first / columns * panel_bytes;
    if (operands.bias != nullptr) part.bias = operands.bias + first * size_of(op.bias.dtype);
    if (op.accumulate) kernels::run(Copy{target, part.c}, context);
    name = multiply(op, plan, part);
    stream_.wait();
    kernels::run(Copy{part.c, target}, context);
  }
  return name;
}

const char* MatmulRunner::Library::run(const Matmul& op, const Context& context) {
  Plan plan = plan_of(op);
  const Layout plain = layout_of(plan.k, plan.n, op.b.dtype, op.b.row_stride, op.transpose_b);
  Layout layout;
  if (plan.packs_b) layout = packed_layout(plan.k, plan.n, op.b.dtype);
  plan.packs_b = plan.packs_b && layout != plain;
  const bool is_packed = prepare_scratch(op, plan, layout, context.scratch);
  std::byte* const packed_b = context.scratch.data();
  if (plan.packs_b && !is_packed) convert(plain, op.b.data, layout, packed_b);
  const auto packed_bytes = plan.packs_b ? static_cast<std::int64_t>(layout.get_size()) : 0;
  std::byte* const gathered_a = packed_b + round_up_64(packed_bytes);
  std::byte* const tile = gathered_a + gathered_bytes(plan, op.a.dtype);
  const bool cuts = can_cut(plan, layout, op.b.dtype);
  const std::int64_t panel_bytes = packed_bytes / plan.n * tile_columns(plan);

  const char* name = "";
  for (std::int64_t first = 0; first < plan.m;) {
    const bool in_tiles = context.hook.wants_tiles();
    if (first > 0 && in_tiles) context.hook.between_tiles();
    const std::int64_t rest = plan.m - first;
    const std::int64_t limit = plan.gathers_a || in_tiles ? rows_per_block : rest;
    // Halves at the end rather than a sliver.
    const std::int64_t count = rest >= 2 * limit ? limit : (rest > limit ? rest / 2 : rest);
    Operands operands{
        op.a.data + first * (op.transpose_a ? 1 : op.a.row_stride) * size_of(op.a.dtype),
        plan.packs_b ? packed_b : op.b.data, op.bias.data, op.c};
    if (plan.gathers_a) {
      convert(layout_of(count, plan.k, op.a.dtype, op.a.row_stride, op.transpose_a), operands.a,
              layout_of(count, plan.k, op.a.dtype, plan.k), gathered_a);
      operands.a = gathered_a;
    }
    operands.c.data += first * op.c.row_stride * size_of(op.c.dtype);
    operands.c.shape = {count, plan.n};
    name = cuts && in_tiles ? multiply_tiles(op, plan, operands, panel_bytes, tile, context)
                            : multiply(op, plan, operands);
    first += count;
  }
  stream_.wait();
  return name;
}

MatmulRunner::MatmulRunner() : library_{std::make_unique<Library>()} {}
MatmulRunner::~MatmulRunner() = default;

const char* MatmulRunner::run(const Matmul& op, const Context& context) {
  try {
    return library_->run(op, context);
  } catch (const dnnl::error& error) {
    throw Error{message("oneDNN refused ", op.a.shape.to_string(), " times ",
                        op.b.shape.to_string(), ": ", error.what())};
  }
}

std::int64_t matmul_scratch_bytes(const Matmul& op) {
  const Plan plan = plan_of(op);
  // oneDNN pads k and n to its block sizes, at most 64.
  const std::int64_t packed_bytes =
      plan.packs_b ? round_up_64(plan.k) * round_up_64(plan.n) * size_of(op.b.dtype) : 0;
  return packed_bytes + gathered_bytes(plan, op.a.dtype) + tile_bytes(plan, op.c.dtype);
}

void sgemm(const SgemmSizes& sizes, const SgemmOperand& a, const SgemmOperand& b,
           const SgemmResult& c) {
  const dnnl_status_t status = dnnl_sgemm(
      a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', sizes.m, sizes.n, sizes.k, sizes.alpha,
      a.data, a.stride, b.data, b.stride, sizes.accumulate ? 1.0F : 0.0F, c.data, c.stride);
  SHARDMARK_CHECK(status == dnnl_success, "dnnl_sgemm returned ", static_cast<int>(status));
}

}  // namespace shardmark::kernels
