#include "layers/named_tensor.hpp"

#include "core/bf16.hpp"
#include "core/error.hpp"
#include "core/f16.hpp"

#include <algorithm>
#include <array>

namespace shardmark {
namespace {

void store(std::vector<std::byte>& bytes, DType dtype, std::int64_t index, float value) {
  switch (dtype) {
    case DType::f32:
      reinterpret_cast<float*>(bytes.data())[index] = value;
      break;
    case DType::bf16:
      reinterpret_cast<std::uint16_t*>(bytes.data())[index] = to_bf16(value);
      break;
    case DType::i32:
      reinterpret_cast<std::int32_t*>(bytes.data())[index] = static_cast<std::int32_t>(value);
      break;
    case DType::f64:
      reinterpret_cast<double*>(bytes.data())[index] = static_cast<double>(value);
      break;
    case DType::f16:
      reinterpret_cast<std::uint16_t*>(bytes.data())[index] = to_f16(value);
      break;
    case DType::i8:
      reinterpret_cast<std::int8_t*>(bytes.data())[index] = static_cast<std::int8_t>(value);
      break;
  }
}

/// Parts of rows [global_first, ...) where these are themselves rows of `rows`, run after run.
std::vector<ShardPart> parts_at(const std::vector<ShardPart>& parts,
                                const std::vector<Places::Run>& rows) {
  std::vector<ShardPart> placed;
  for (const ShardPart& part : parts) {
    std::int64_t before = 0;
    for (const Places::Run& run : rows) {
      const std::int64_t from = std::max(part.global_first, before);
      const std::int64_t to = std::min(part.global_first + part.count, before + run.count);
      const std::int64_t step = run.stride == 1 ? to - from : 1;
      for (std::int64_t row = from; row < to; row += step) {
        placed.push_back(part);
        placed.back().local_first = part.local_first + row - part.global_first;
        placed.back().global_first = run.place(row - before);
        placed.back().count = step;
      }
      before += run.count;
    }
  }
  return placed;
}

}  // namespace

std::int64_t NamedTensor::global_row(std::int64_t row) const {
  std::int64_t before = 0;
  for (const Places::Run& run : rows) {
    if (row < before + run.count) return run.place(row - before);
    before += run.count;
  }
  return row;
}

std::string_view name_of(Role role) {
  static constexpr std::array<std::string_view, 5> names{"input", "weight", "activation", "output",
                                                         "gradient"};
  return names[static_cast<std::size_t>(role)];
}

Prefix::~Prefix() {
  for (std::size_t i = first_; i < list_.size(); ++i) {
    list_[i].name = prefix_ + '/' + list_[i].name;
    for (ShardPart& part : list_[i].parts) part.of = prefix_ + '/' + part.of;
  }
}

NamedTensor replicated(std::string name, const Tensor& tensor, Role role, std::string formula,
                       Init init) {
  ShardPart whole{name, tensor.shape, 0, 0, tensor.shape[0], init};
  return {std::move(name), tensor, role, 0, {std::move(whole)}, std::move(formula)};
}

void place_tokens(NamedTensors& tensors, const Places& places, std::int64_t batch,
                  std::int64_t seq) {
  std::vector<Places::Run> rows;
  for (std::int64_t sequence = 0; sequence < batch; ++sequence)
    for (const Places::Run& run : places.runs)
      if (run.count > 0) rows.push_back({sequence * seq + run.first, run.count, run.stride});
  for (NamedTensor& named : tensors) {
    if (!named.per_token) continue;
    for (ShardPart& part : named.parts) part.global_shape.set(0, batch * seq);
    if (named.dim == 0)
      named.parts = parts_at(named.parts, rows);
    else
      named.rows = rows;
  }
}

void write_values(Backend& backend, const NamedTensor& target, const Values& values) {
  if (target.tensor.data == nullptr) return;
  const std::int64_t cols = target.tensor.cols();
  const bool split_columns = target.dim + 1 == target.tensor.shape.num_dims();
  std::vector<std::uint64_t> keys;
  for (const ShardPart& part : target.parts) keys.push_back(values.key(part.of));
  // A few rows at a time: a copy of a whole weight would count as peak memory.
  constexpr std::int64_t elements_at_once = std::int64_t{1} << 18U;
  const Tensor matrix = target.tensor.reshape({target.tensor.rows(), cols});
  const std::int64_t rows_at_once = std::max<std::int64_t>(1, elements_at_once / cols);
  for (std::int64_t first = 0; first < matrix.rows(); first += rows_at_once) {
    const Tensor block = matrix.row_block(first, std::min(rows_at_once, matrix.rows() - first));
    std::vector<std::byte> bytes(static_cast<std::size_t>(block.bytes()));
    for (std::size_t p = 0; p < target.parts.size(); ++p) {
      const ShardPart& part = target.parts[p];
      const std::int64_t shift = part.global_first - part.local_first;
      const std::int64_t end = part.local_first + part.count;
      const std::int64_t first_row = split_columns ? first : std::max(first, part.local_first);
      const std::int64_t end_row =
          split_columns ? first + block.rows() : std::min(first + block.rows(), end);
      for (std::int64_t i = first_row; i < end_row; ++i) {
        const std::int64_t global_row = split_columns ? target.global_row(i) : i + shift;
        for (std::int64_t j = split_columns ? part.local_first : 0;
             j < (split_columns ? end : cols); ++j)
          store(bytes, block.dtype, (i - first) * cols + j,
                values.value(keys[p], part.init, part.global_shape, global_row,
                             j + (split_columns ? shift : 0)));
      }
    }
    backend.write(block, bytes.data());
  }
}

std::vector<float> read_f32(Backend& backend, const Tensor& tensor) {
  std::vector<float> result(static_cast<std::size_t>(tensor.numel()));
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes()));
  const auto row_bytes = static_cast<std::size_t>(tensor.cols() * size_of(tensor.dtype));
  if (tensor.contiguous()) {
    backend.read(tensor, bytes.data());
  } else {
    SHARDMARK_CHECK(tensor.shape.num_dims() == 2, "cannot read a strided view of ",
                    tensor.shape.to_string());
    for (std::int64_t row = 0; row < tensor.rows(); ++row)
      backend.read(tensor.row_block(row, 1),
                   bytes.data() + static_cast<std::size_t>(row) * row_bytes);
  }
  for (std::size_t i = 0; i < result.size(); ++i) switch (tensor.dtype) {
      case DType::f32:
        result[i] = reinterpret_cast<const float*>(bytes.data())[i];
        break;
      case DType::bf16:
        result[i] = to_float(reinterpret_cast<const std::uint16_t*>(bytes.data())[i]);
        break;
      case DType::i32:
        result[i] = static_cast<float>(reinterpret_cast<const std::int32_t*>(bytes.data())[i]);
        break;
      case DType::f64:
        result[i] = static_cast<float>(reinterpret_cast<const double*>(bytes.data())[i]);
        break;
      case DType::f16:
        result[i] = from_f16(reinterpret_cast<const std::uint16_t*>(bytes.data())[i]);
        break;
      case DType::i8:
        result[i] = static_cast<float>(reinterpret_cast<const std::int8_t*>(bytes.data())[i]);
        break;
    }
  return result;
}

}  // namespace shardmark
