#include "core/cpu/matmul.hpp"

#include "core/cpu/onednn.hpp"
#include "core/error.hpp"

#include <algorithm>

namespace shardmark::kernels {
namespace {

// Plain b is packed inside oneDNN at each call. Packing it before the call instead takes, relative
// to that, 1.6, 1.4, 1.3, 1.0 and 0.95 times as long for 64, 128, 256, 512 and 1024 rows of a (f32
// and bf16, 2048 x 8192 and turned, AVX-512, oneDNN 2.6.3); a copy used again is always a gain.
constexpr std::int64_t min_rows_to_pack = 512;
constexpr std::int64_t min_rows_to_pack_for_reuse = 64;
// Rows of op(a) put in order at a time, and rows of c per tile while communication is in flight:
// a block of 256 rows stays in the level 2 cache, fewer would read b too often (64 x 64 tiles reach
// 80 % of the speed of one call, 256 x 64 tiles 96 %).
constexpr std::int64_t rows_per_block = 256;
// Tiles are cut between columns as well, where packed b can be. 40 MFLOP are about 0.25 ms.
constexpr std::int64_t columns_per_panel = 64;
constexpr double flops_per_tile = 40e6;

/// oneDNN 2.6 runs its fast kernels on dense row-major a and c only. So a transposed or strided a
/// is put in order block by block, which costs 1 ms per 8 MiB and makes x^T dy the fastest of the
/// three products of a linear layer; b is packed; a strided c takes the general kernel.
struct Plan {
  std::int64_t m, n, k;
  bool gathers_a, packs_b;
  std::int64_t tile_columns;  ///< a tile of c lies between panels of packed b; n: no such cut
};

/// Panels whose product with a block of rows is a tile of about `flops_per_tile`.
std::int64_t wanted_columns(const Plan& plan) {
  if (!plan.packs_b || plan.n % columns_per_panel != 0) return plan.n;
  const std::int64_t rows = std::min(plan.m, rows_per_block);
  const double flops_per_panel =
      2.0 * static_cast<double>(rows) * static_cast<double>(plan.k) * columns_per_panel;
  auto panels = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(flops_per_tile / flops_per_panel), 1, plan.n / columns_per_panel);
  while (plan.n % (panels * columns_per_panel) != 0) --panels;
  return panels * columns_per_panel;
}

Plan plan_of(const Matmul& op) {
  const bool dense_a = !op.transpose_a && op.a.contiguous();
  const std::int64_t min_rows = op.reuse_b ? min_rows_to_pack_for_reuse : min_rows_to_pack;
  const bool packs_b = op.c.rows() >= min_rows && op.c.contiguous();
  Plan plan{op.c.rows(), op.c.cols(), op.transpose_a ? op.a.rows() : op.a.cols(),
            !dense_a,    packs_b,     0};
  plan.tile_columns = wanted_columns(plan);
  return plan;
}

std::int64_t round_up_64(std::int64_t value) { return (value + 63) / 64 * 64; }
std::int64_t gathered_bytes(const Plan& plan, DType dtype) {
  if (!plan.gathers_a) return 0;
  return round_up_64(std::min(plan.m, rows_per_block) * plan.k * size_of(dtype));
}
std::int64_t tile_bytes(const Plan& plan, DType c_dtype) {
  if (plan.tile_columns == plan.n) return 0;
  return round_up_64(std::min(plan.m, rows_per_block) * plan.tile_columns * size_of(c_dtype));
}

/// A packed b as it lies in the scratch block.
struct Packed {
  const std::byte* data{nullptr};
  std::int64_t k{0}, n{0}, stride{0}, generation{-1};
  DType dtype{DType::f32};
  bool transposed{false};
  bool operator==(const Packed&) const = default;
};

/// Parts of the scratch block, and how many bytes of packed b there are per column.
struct Room {
  std::byte *packed_b, *gathered_a, *tile;
  std::int64_t packed_bytes;
};

}  // namespace

class MatmulRunner::Implementation {
 public:
  const char* run(const Matmul& op, const Context& context);

 private:
  Room pack(const Matmul& op, const Plan& plan, Scratch& scratch);
  std::byte* rows_of_a(const Matmul& op, const Plan& plan, std::int64_t first, std::int64_t count,
                       std::byte* gathered);
  const char* multiply(const Matmul& op, const Plan& plan, const OneDnn::Operands& operands,
                       const Tensor& c);
  const char* multiply_tiles(const Matmul& op, const Plan& plan, const OneDnn::Operands& operands,
                             const Tensor& c, const Room& room, const Context& context);

  OneDnn library_;
  Packed packed_;
};

/// Lays out the scratch block and packs b there unless it lies there already.
Room MatmulRunner::Implementation::pack(const Matmul& op, const Plan& plan, Scratch& scratch) {
  const std::int64_t packed_bytes =
      plan.packs_b
          ? static_cast<std::int64_t>(library_.packed_layout(plan.k, plan.n, op.b.dtype).get_size())
          : 0;
  const std::int64_t a_begin = round_up_64(packed_bytes);
  const std::int64_t tile_begin = a_begin + gathered_bytes(plan, op.a.dtype);
  const std::int64_t bytes = tile_begin + tile_bytes(plan, op.c.dtype);
  Packed wanted{op.b.data,  plan.k,        plan.n, op.b.row_stride, scratch.generation(),
                op.b.dtype, op.transpose_b};
  const bool is_packed = op.reuse_b && packed_ == wanted && scratch.bytes() >= bytes;
  if (!is_packed) {
    (void)scratch.take(bytes);
    wanted.generation = plan.packs_b ? scratch.generation() : -1;
    packed_ = wanted;
  }
  std::byte* const data = scratch.data();
  if (plan.packs_b && !is_packed)
    library_.convert(layout_of(plan.k, plan.n, op.b.dtype, op.b.row_stride, op.transpose_b),
                     op.b.data, library_.packed_layout(plan.k, plan.n, op.b.dtype), data);
  return {data, data + a_begin, data + tile_begin, packed_bytes};
}

/// Rows [first, first + count) of op(a), dense: where they are, or gathered.
std::byte* MatmulRunner::Implementation::rows_of_a(const Matmul& op, const Plan& plan,
                                                   std::int64_t first, std::int64_t count,
                                                   std::byte* gathered) {
  const std::int64_t step = op.transpose_a ? 1 : op.a.row_stride;
  std::byte* const rows = op.a.data + first * step * size_of(op.a.dtype);
  if (!plan.gathers_a) return rows;
  library_.convert(layout_of(count, plan.k, op.a.dtype, op.a.row_stride, op.transpose_a), rows,
                   layout_of(count, plan.k, op.a.dtype, plan.k), gathered);
  return gathered;
}

const char* MatmulRunner::Implementation::multiply(const Matmul& op, const Plan& plan,
                                                   const OneDnn::Operands& operands,
                                                   const Tensor& c) {
  return library_.multiply(
      {c.rows(), c.cols(), plan.k, plan.packs_b ? 0 : op.b.row_stride,
       c.contiguous() ? c.cols() : c.row_stride, op.a.dtype, c.dtype,
       !plan.packs_b && op.transpose_b, plan.packs_b, static_cast<bool>(op.bias), op.accumulate},
      operands);
}

/// The same product panel by panel of b, each into a dense tile first, because oneDNN's fast
/// kernels do not write into a column block.
const char* MatmulRunner::Implementation::multiply_tiles(const Matmul& op, const Plan& plan,
                                                         const OneDnn::Operands& operands,
                                                         const Tensor& c, const Room& room,
                                                         const Context& context) {
  const char* name = "";
  const std::int64_t columns = plan.tile_columns;
  Tensor tile = c;
  tile.shape = {c.rows(), columns};
  tile.row_stride = columns;
  tile.data = room.tile;
  OneDnn::Operands part{operands.a, operands.b, operands.bias, tile.data};
  for (std::int64_t first = 0; first < plan.n; first += columns) {
    if (first > 0 && context.hook.wants_tiles()) context.hook.between_tiles();
    part.b = operands.b + room.packed_bytes / plan.n * first;
    if (op.bias) part.bias = operands.bias + first * size_of(op.bias.dtype);
    const Tensor target = c.column_block(first, columns);
    if (op.accumulate) kernels::run(Copy{target, tile}, context);
    name = multiply(op, plan, part, tile);
    kernels::run(Copy{tile, target}, context);
  }
  return name;
}

const char* MatmulRunner::Implementation::run(const Matmul& op, const Context& context) {
  Plan plan = plan_of(op);
  plan.packs_b = plan.packs_b && context.may_pack &&
                 library_.packed_layout(plan.k, plan.n, op.b.dtype) !=
                     layout_of(plan.k, plan.n, op.b.dtype, op.b.row_stride, op.transpose_b);
  const bool can_cut = plan.packs_b && plan.tile_columns < plan.n &&
                       library_.has_panels(plan.k, plan.n, plan.tile_columns, op.b.dtype);
  const Room room = pack(op, plan, context.scratch);
  const char* name = "";
  for (std::int64_t first = 0; first < plan.m;) {
    const bool in_tiles = context.hook.wants_tiles();
    if (first > 0 && in_tiles) context.hook.between_tiles();
    const std::int64_t rest = plan.m - first;
    const std::int64_t limit = plan.gathers_a || in_tiles ? rows_per_block : rest;
    // Halves at the end rather than a sliver.
    const std::int64_t count = rest >= 2 * limit ? limit : (rest > limit ? rest / 2 : rest);
    Tensor c = op.c;
    c.shape = {count, plan.n};
    c.data += first * op.c.row_stride * size_of(op.c.dtype);
    const OneDnn::Operands operands{rows_of_a(op, plan, first, count, room.gathered_a),
                                    plan.packs_b ? room.packed_b : op.b.data, op.bias.data, c.data};
    name = can_cut && in_tiles ? multiply_tiles(op, plan, operands, c, room, context)
                               : multiply(op, plan, operands, c);
    first += count;
  }
  return name;
}

MatmulRunner::MatmulRunner() : implementation_{std::make_unique<Implementation>()} {}
MatmulRunner::~MatmulRunner() = default;

const char* MatmulRunner::run(const Matmul& op, const Context& context) {
  try {
    return implementation_->run(op, context);
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

}  // namespace shardmark::kernels
