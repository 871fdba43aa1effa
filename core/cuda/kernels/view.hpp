#pragma once

// How functors read and write tensors, the same on the host and on the device. A functor is
// compiled for both, so that its arithmetic is tested where there is no GPU.

#include "core/bf16.hpp"
#include "core/f16.hpp"
#include "core/tensor.hpp"

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define SHARDMARK_BOTH __host__ __device__
#else
#define SHARDMARK_BOTH
#endif

namespace shardmark::cuda {

/// Elements that are moved together. Eight 16-bit elements are one access of 16 bytes, eight floats
/// are two.
inline constexpr int wide = 8;

template <class T, int width>
struct alignas(width * sizeof(T) > 16 ? 16 : width * sizeof(T)) Packet {
  T at[width];
};

/// The compiler makes accesses of 16 bytes of an aligned struct only where it is copied whole.
template <class P>
SHARDMARK_BOTH P fetch(const void* from) {
#ifdef __CUDA_ARCH__
  return *static_cast<const P*>(from);
#else
  P packet;
  std::memcpy(&packet, from, sizeof packet);
  return packet;
#endif
}
template <class P>
SHARDMARK_BOTH void put(void* to, const P& packet) {
#ifdef __CUDA_ARCH__
  *static_cast<P*>(to) = packet;
#else
  std::memcpy(to, &packet, sizeof packet);
#endif
}

/// Rows and columns that a kernel works on.
struct Extent {
  std::int64_t rows{0}, cols{0};
};

/// A matrix of f32, bf16 or f16 whose rows start `row_stride` elements apart. The dtype is a value,
/// not a type: all threads branch alike, and memory is what these kernels wait for.
struct View {
  std::byte* data{nullptr};
  std::int64_t row_stride{0};
  DType dtype{DType::f32};
};

template <int width>
struct Values {
  float at[width];
};
template <int width>
SHARDMARK_BOTH Values<width> operator+(Values<width> a, const Values<width>& b) {
  for (int i = 0; i < width; ++i) a.at[i] += b.at[i];
  return a;
}

/// `width` elements of a row. Where width is above 1, their address is a multiple of 16 bytes.
template <int width>
SHARDMARK_BOTH Values<width> load(const View& x, std::int64_t row, std::int64_t column) {
  const std::int64_t index = row * x.row_stride + column;
  Values<width> values;
  if (x.dtype == DType::f32) {
    const auto packet = fetch<Packet<float, width>>(x.data + 4 * index);
    for (int i = 0; i < width; ++i) values.at[i] = packet.at[i];
    return values;
  }
  const auto packet = fetch<Packet<std::uint16_t, width>>(x.data + 2 * index);
  if (x.dtype == DType::bf16)
    for (int i = 0; i < width; ++i) values.at[i] = to_float(packet.at[i]);
  else
    for (int i = 0; i < width; ++i) values.at[i] = from_f16(packet.at[i]);
  return values;
}
SHARDMARK_BOTH inline float load_one(const View& x, std::int64_t row, std::int64_t column) {
  return load<1>(x, row, column).at[0];
}

template <int width>
SHARDMARK_BOTH void store(const View& y, std::int64_t row, std::int64_t column,
                          const Values<width>& values) {
  const std::int64_t index = row * y.row_stride + column;
  if (y.dtype == DType::f32) {
    Packet<float, width> packet;
    for (int i = 0; i < width; ++i) packet.at[i] = values.at[i];
    put(y.data + 4 * index, packet);
    return;
  }
  Packet<std::uint16_t, width> packet;
  if (y.dtype == DType::bf16)
    for (int i = 0; i < width; ++i) packet.at[i] = to_bf16(values.at[i]);
  else
    for (int i = 0; i < width; ++i) packet.at[i] = to_f16(values.at[i]);
  put(y.data + 2 * index, packet);
}
SHARDMARK_BOTH inline void store_one(const View& y, std::int64_t row, std::int64_t column,
                                     float value) {
  store(y, row, column, Values<1>{{value}});
}

/// Token ids, `stride` elements apart.
struct Ids {
  const std::int32_t* data{nullptr};
  std::int64_t stride{1};
  /// The position of token t's id in a shard of `count` ids from `first` on; -1: not in this shard.
  [[nodiscard]] SHARDMARK_BOTH std::int64_t local(std::int64_t t, std::int64_t first,
                                                  std::int64_t count) const {
    const std::int64_t id = data[t * stride] - first;
    return id >= 0 && id < count ? id : -1;
  }
};

/// Rows of a part of each sequence of a batch, and where they are among the rows of the whole.
struct RowMap {
  std::int64_t part_rows{1};   ///< of one sequence
  std::int64_t whole_rows{1};  ///< of one sequence
  std::int64_t first{0};       ///< the part's first row, in the whole
  [[nodiscard]] SHARDMARK_BOTH std::int64_t whole(std::int64_t part_row) const {
    return part_row / part_rows * whole_rows + first + part_row % part_rows;
  }
};

}  // namespace shardmark::cuda
