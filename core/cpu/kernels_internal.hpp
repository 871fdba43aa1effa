#pragma once

// What the kernel files share. One function per op; each returns the implementation's name.

#include "core/cpu/arena.hpp"
#include "core/cpu/kernels.hpp"
#include "core/ops.hpp"

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace shardmark::kernels {

/// One block of arena memory, replaced by a larger one on demand and kept. A packed matrix stays in
/// it until somebody else takes the block, which `generation` tells.
class Scratch {
 public:
  explicit Scratch(Arena& arena) : arena_{arena} {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { arena_.deallocate(data_); }

  /// At least `bytes`, contents unspecified; ends the use of the block by whoever had it.
  [[nodiscard]] std::byte* take(std::int64_t bytes) {
    ++generation_;
    if (bytes > bytes_) {
      arena_.deallocate(data_);
      data_ = nullptr;
      bytes_ = 0;
      data_ = arena_.allocate(bytes);
      bytes_ = bytes;
    }
    return data_;
  }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  [[nodiscard]] std::int64_t generation() const { return generation_; }

 private:
  Arena& arena_;
  std::byte* data_{nullptr};
  std::int64_t bytes_{0}, generation_{0};
};

/// cos and sin of the rotary angles, made once for the places of a sequence's rows.
class RotaryTables {
 public:
  /// seq rows of head_dim floats: head_dim/2 cosines, then as many sines.
  [[nodiscard]] const float* get(const Rope& op);

 private:
  struct Table {
    Places places;
    std::vector<std::int64_t> starts;
    std::int64_t head_dim;
    float theta;
    std::vector<float> rows;
  };
  std::vector<Table> tables_;
};

/// What a running kernel may use.
struct Context {
  int num_threads;
  TileHook& hook;
  Scratch& scratch;
  RotaryTables& rotary;
  bool may_pack{true};  ///< matmuls may reorder b into oneDNN's preferred layout first
};

/// Calls body(first, last) for parts of [0, count), one part per thread.
template <class Body>
void in_parallel(int num_threads, std::int64_t count, const Body& body) {
  if (num_threads <= 1 || count <= 1) {
    body(std::int64_t{0}, count);
    return;
  }
  const int parts = static_cast<int>(std::min<std::int64_t>(num_threads, count));
  const auto run_part = [&](int part) { body(count * part / parts, count * (part + 1) / parts); };
#ifdef __SANITIZE_THREAD__
  // The sanitizer does not see how libgomp's threads wait for each other; these it does.
  std::vector<std::jthread> threads;
  for (int part = 0; part < parts; ++part)
    threads.emplace_back([&run_part, part] {
      omp_set_num_threads(1);
      run_part(part);
    });
#else
#pragma omp parallel for num_threads(parts) schedule(static, 1)
  for (int part = 0; part < parts; ++part) run_part(part);
#endif
}

/// Calls body(first, last) for consecutive row ranges that together are [0, rows), in parallel
/// parts; while communication is in flight in tiles of about a quarter millisecond.
template <class Body>
void for_rows(const Context& context, std::int64_t rows, std::int64_t bytes_per_row,
              const Body& body) {
  constexpr std::int64_t tile_bytes = std::int64_t{2} << 20;
  const std::int64_t tile_rows = std::max<std::int64_t>(1, tile_bytes / (bytes_per_row + 1));
  for (std::int64_t first = 0; first < rows;) {
    if (first > 0) context.hook.between_tiles();
    const std::int64_t count =
        context.hook.wants_tiles() ? std::min(tile_rows, rows - first) : rows - first;
    in_parallel(context.num_threads, count,
                [&](std::int64_t from, std::int64_t to) { body(first + from, first + to); });
    first += count;
  }
}

/// Calls body(first_column, num_columns) for parts of the columns, one part per thread: for sums
/// over rows, which then come out the same however many threads there are.
template <class Body>
void for_column_parts(int num_threads, std::int64_t cols, const Body& body) {
  constexpr std::int64_t step = 64;
  in_parallel(num_threads, (cols + step - 1) / step, [&](std::int64_t from, std::int64_t to) {
    body(from * step, std::min(cols, to * step) - from * step);
  });
}

/// Calls body(first_row, last_row, first_column, num_columns): tiles of rows one after another,
/// parts of their columns in parallel.
template <class Body>
void for_column_parts_of_rows(const Context& context, const Tensor& x, const Body& body) {
  Context one_thread = context;
  one_thread.num_threads = 1;
  for_rows(one_thread, x.rows(), x.cols() * size_of(x.dtype),
           [&](std::int64_t first, std::int64_t last) {
             for_column_parts(context.num_threads, x.cols(),
                              [&](std::int64_t column, std::int64_t count) {
                                body(first, last, column, count);
                              });
           });
}

const char* run(const Add& op, const Context& context);
const char* run(const AddBias& op, const Context& context);
const char* run(const SumRows& op, const Context& context);
const char* run(const Copy& op, const Context& context);
const char* run(const Fill& op, const Context& context);
const char* run(const Combine& op, const Context& context);
const char* run(const Divide& op, const Context& context);
const char* run(const Gelu& op, const Context& context);
const char* run(const GeluBackward& op, const Context& context);
const char* run(const SwiGlu& op, const Context& context);
const char* run(const SwiGluBackward& op, const Context& context);
const char* run(const Norm& op, const Context& context);
const char* run(const NormBackward& op, const Context& context);
const char* run(const Attention& op, const Context& context);
const char* run(const AttentionBackward& op, const Context& context);
const char* run(const Rope& op, const Context& context);
const char* run(const Embedding& op, const Context& context);
const char* run(const EmbeddingBackward& op, const Context& context);
const char* run(const RowMax& op, const Context& context);
const char* run(const CrossEntropySum& op, const Context& context);
const char* run(const CrossEntropyLoss& op, const Context& context);
const char* run(const CrossEntropyBackward& op, const Context& context);

[[nodiscard]] std::int64_t attention_scratch_bytes(const Attention& op, int num_threads);
[[nodiscard]] std::int64_t attention_scratch_bytes(const AttentionBackward& op, int num_threads);

}  // namespace shardmark::kernels
