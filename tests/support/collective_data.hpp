#pragma once

// Memory with known contents, and what every collective has to make of it.

#include "core/bf16.hpp"
#include "core/f16.hpp"
#include "core/mesh.hpp"
#include "core/ops.hpp"
#include "core/transport.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace shardmark::conformance {

inline double read_element(const std::byte* data, DType dtype, std::int64_t i) {
  const auto as = [&]<class T>(T value) {
    std::memcpy(&value, data + i * size_of(dtype), sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::f32:
      return static_cast<double>(as(0.0F));
    case DType::bf16:
      return static_cast<double>(to_float(as(std::uint16_t{0})));
    case DType::i32:
      return as(std::int32_t{0});
    case DType::f64:
      return as(0.0);
    case DType::f16:
      return static_cast<double>(from_f16(as(std::uint16_t{0})));
    case DType::i8:
      return as(std::int8_t{0});
  }
  return 0;
}

inline void write_element(std::byte* data, DType dtype, std::int64_t i, double value) {
  const auto put = [&](auto element) {
    std::memcpy(data + i * size_of(dtype), &element, sizeof element);
  };
  switch (dtype) {
    case DType::f32:
      return put(static_cast<float>(value));
    case DType::bf16:
      return put(to_bf16(static_cast<float>(value)));
    case DType::i32:
      return put(static_cast<std::int32_t>(value));
    case DType::f64:
      return put(value);
    case DType::f16:
      return put(to_f16(static_cast<float>(value)));
    case DType::i8:
      return put(static_cast<std::int8_t>(value));
  }
}

/// The value as the dtype holds it: integers are cut, floats rounded.
inline double rounded_to(DType dtype, double value) {
  std::byte bytes[8];
  write_element(bytes, dtype, 0, value);
  return read_element(bytes, dtype, 0);
}

/// Elements of one dtype in memory of their own, with a tensor over them and guards around it.
class Data {
 public:
  Data(DType dtype, std::int64_t numel)
      : bytes_(static_cast<std::size_t>(numel * size_of(dtype)) + 3 * guard, mark) {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data() + guard);
    auto* aligned = bytes_.data() + guard + (guard - address % guard) % guard;
    tensor_ = Tensor{1, dtype, Shape{numel}, 0, numel, aligned};
  }
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;

  [[nodiscard]] const Tensor& tensor() const { return tensor_; }
  /// The `index`th of blocks of `numel` elements.
  [[nodiscard]] Tensor block(std::int64_t index, std::int64_t numel) const {
    return Tensor{1,
                  tensor_.dtype,
                  Shape{numel},
                  index * numel,
                  numel,
                  tensor_.data + index * numel * size_of(tensor_.dtype)};
  }
  [[nodiscard]] double get(std::int64_t i) const {
    return read_element(tensor_.data, tensor_.dtype, i);
  }
  template <class Function>
  void fill(const Function& value_of) {
    for (std::int64_t i = 0; i < tensor_.numel(); ++i)
      write_element(tensor_.data, tensor_.dtype, i, value_of(i));
  }
  /// Reports the first element that differs from `expected(i)`, and anything written beside.
  template <class Function>
  void expect(const Transport& transport, const std::string& what, const Function& expected) const {
    expect_part(transport, what, 0, tensor_.numel(), expected);
    const auto* end = tensor_.data + tensor_.bytes();
    const bool clean =
        std::all_of(bytes_.data(), static_cast<const std::byte*>(tensor_.data),
                    [](std::byte b) { return b == mark; }) &&
        std::all_of(end, bytes_.data() + bytes_.size(), [](std::byte b) { return b == mark; });
    EXPECT_TRUE(clean) << "rank " << transport.rank() << ": " << what
                       << " wrote outside of its tensor";
  }
  /// Elements [first, first + count) are expected(0), expected(1), ...
  template <class Function>
  void expect_part(const Transport& transport, const std::string& what, std::int64_t first,
                   std::int64_t count, const Function& expected) const {
    for (std::int64_t i = 0; i < count; ++i)
      if (get(first + i) != expected(i)) {
        ADD_FAILURE() << "rank " << transport.rank() << ": " << what << ", element " << first + i
                      << " of " << tensor_.numel() << " is " << get(first + i) << ", not "
                      << expected(i);
        return;
      }
  }

 private:
  static constexpr std::size_t guard = 64;
  static constexpr std::byte mark{0x7B};
  std::vector<std::byte> bytes_;
  Tensor tensor_;
};

/// Small integers, exact in every dtype even when summed over 8 ranks.
inline double value_at(int rank, std::int64_t element) {
  return static_cast<double>((element * 7 + rank * 5) % 17 - 8);
}
/// Likewise for products: ones of both signs, and a 2 from one rank in eight.
inline double factor_at(int rank, std::int64_t element) {
  const std::int64_t turn = (element * 3 + rank) % 8;
  return turn == 0 ? 2 : turn % 2 == 0 ? 1 : -1;
}
inline double value_at(Reduction reduction, int rank, std::int64_t element) {
  return reduction == Reduction::prod ? factor_at(rank, element) : value_at(rank, element);
}
/// What the reduction of all members' values is.
inline double reduced(DType dtype, Reduction reduction, const Group& group, std::int64_t element) {
  double result = value_at(reduction, group.world_rank(0), element);
  for (int member = 1; member < group.size; ++member) {
    const double value = value_at(reduction, group.world_rank(member), element);
    switch (reduction) {
      case Reduction::sum:
      case Reduction::avg:
        result += value;
        break;
      case Reduction::prod:
        result *= value;
        break;
      case Reduction::max:
        result = std::max(result, value);
        break;
      case Reduction::min:
        result = std::min(result, value);
        break;
    }
  }
  return rounded_to(dtype, reduction == Reduction::avg ? result / group.size : result);
}

inline void finish(Transport& transport, Lane lane) {
  Waiter waiter{transport};
  while (!transport.test(lane)) waiter.pause([] { return std::string{"a conformance check"}; });
}

inline void communicate(Transport& transport, const Op& op, Lane lane) {
  transport.start(op, lane);
  finish(transport, lane);
}

inline Group world_of(const Transport& transport) {
  return Group{Axis::tp, 0, 1, transport.size(), transport.rank()};
}
inline Group connected_world(Transport& transport, Lane lane = Lane::tp) {
  const Group group = world_of(transport);
  transport.connect(group, lane);
  return group;
}

inline constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::i32,
                                   DType::f64, DType::f16,  DType::i8};
inline constexpr Reduction reductions[] = {Reduction::sum, Reduction::prod, Reduction::max,
                                           Reduction::min, Reduction::avg};
inline constexpr std::int64_t sizes[] = {0, 1, 3, 16, 1000, 20011};
inline constexpr std::int64_t few_sizes[] = {0, 1, 1003};

}  // namespace shardmark::conformance
