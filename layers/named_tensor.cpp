#include "layers/named_tensor.hpp"

#include "core/bf16.hpp"
#include "core/error.hpp"

#include <array>

namespace shardmark {
namespace {

/// Calls f(local row, local col, part, global row, global col) for every element.
template <class F>
void for_each_element(const NamedTensor& named, const F& f) {
  const bool split_columns = named.dim + 1 == named.tensor.shape.num_dims();
  for (const ShardPart& part : named.parts) {
    const std::int64_t rows = split_columns ? named.tensor.rows() : part.count;
    const std::int64_t cols = split_columns ? part.count : named.tensor.cols();
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j) {
        if (split_columns)
          f(i, part.local_first + j, part, i, part.global_first + j);
        else
          f(part.local_first + i, j, part, part.global_first + i, j);
      }
  }
}

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
  }
}

}  // namespace

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

void write_values(Backend& backend, const NamedTensor& target, const Values& values) {
  if (target.tensor.data == nullptr) return;
  std::vector<std::byte> bytes(static_cast<std::size_t>(target.tensor.bytes()));
  const std::int64_t cols = target.tensor.cols();
  std::string keyed_name;
  std::uint64_t key = 0;
  for_each_element(target, [&](std::int64_t i, std::int64_t j, const ShardPart& part,
                               std::int64_t global_i, std::int64_t global_j) {
    if (part.of != keyed_name) {
      keyed_name = part.of;
      key = values.key(part.of);
    }
    store(bytes, target.tensor.dtype, i * cols + j,
          values.value(key, part.init, part.global_shape, global_i, global_j));
  });
  backend.write(target.tensor, bytes.data());
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
    }
  return result;
}

}  // namespace shardmark
