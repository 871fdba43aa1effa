#pragma once

#include "core/backend.hpp"
#include "core/buffer.hpp"
#include "core/mesh.hpp"
#include "core/ops.hpp"
#include "core/record.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardmark {

/// A scope path and the paths below it. Interned, so that recording an op copies one pointer.
struct PathNode {
  std::string path;
  std::map<std::string, std::unique_ptr<PathNode>, std::less<>> children;
};

/// What a layer sees of the machine: memory, its place in the mesh, and one function to run ops.
class Rank {
 public:
  /// `id` is the rank's coordinate in `mesh`. `sink`, if given, receives every op; both it and the
  /// backend must outlive the Rank.
  Rank(int id, const Mesh& mesh, Backend& backend, OpSink* sink = nullptr);
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  [[nodiscard]] int id() const { return id_; }
  [[nodiscard]] const Mesh& mesh() const { return mesh_; }
  [[nodiscard]] Group group(Axis axis) const { return mesh_.group(id_, axis); }
  [[nodiscard]] Backend& backend() const { return backend_; }

  /// A new contiguous buffer; its contents are unspecified. Not for timed regions.
  [[nodiscard]] Buffer allocate(const Shape& shape, DType dtype, Category category);

  /// During its lifetime buffers of `category` get a shape but no memory: for programs without ops
  /// that touch them, such as gradients in inference.
  class Omission {
   public:
    Omission(Rank& rank, Category category) : rank_{rank} { rank_.omitted_ = category; }
    Omission(const Omission&) = delete;
    Omission& operator=(const Omission&) = delete;
    ~Omission() { rank_.omitted_.reset(); }

   private:
    Rank& rank_;
  };
  [[nodiscard]] Omission omit(Category category) { return Omission{*this, category}; }

  /// During its lifetime buffers of `category` are not new: the n-th one is a view of the n-th in
  /// `pool`, which is allocated where the pool has none yet and then has the same shape. For
  /// programs that allocate the same several times and use it in turns. The pool must outlive the
  /// buffers.
  class Sharing {
   public:
    Sharing(Rank& rank, Category category, std::vector<Buffer>& pool) : rank_{rank} {
      rank_.shared_ = {&pool, category, 0};
    }
    Sharing(const Sharing&) = delete;
    Sharing& operator=(const Sharing&) = delete;
    ~Sharing() { rank_.shared_ = {}; }

   private:
    Rank& rank_;
  };
  [[nodiscard]] Sharing share(Category category, std::vector<Buffer>& pool) {
    return Sharing{*this, category, pool};
  }

  /// The one seam: numbers the op, tells the sink, hands it to the backend. Use the functions of
  /// core/functions.hpp, which check shapes and then call this.
  void submit(const Op& op, Lane lane);
  /// A fence that completes when `lane` has finished everything submitted so far.
  [[nodiscard]] Fence signal(Lane lane);
  /// Makes later ops on `lane` wait for `fence`.
  void await(Fence fence, Lane lane);
  /// Makes later ops on `waiting` wait for everything submitted so far to `lane`. Does nothing when
  /// `lane` has been given nothing since the last such call.
  void order(Lane lane, Lane waiting);
  /// Runs everything to its end.
  void synchronize() { backend_.synchronize(); }

  /// Adds a name to the path of ops submitted during its lifetime.
  class Scope {
   public:
    Scope(Rank& rank, std::string_view name);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { rank_.path_ = parent_; }

   private:
    Rank& rank_;
    PathNode* parent_;
  };
  [[nodiscard]] Scope scope(std::string_view name) { return Scope{*this, name}; }
  [[nodiscard]] const std::string& path() const { return path_->path; }

  /// Replaces the sink (null: none); earlier records stay with the old one.
  void set_sink(OpSink* sink) { sink_ = sink; }

 private:
  friend class Buffer;
  struct Shared {
    std::vector<Buffer>* pool{nullptr};
    Category category{Category::activation};
    std::size_t next{0};
  };
  [[nodiscard]] Buffer make_buffer(const Shape& shape, DType dtype, Category category);
  void release(const Tensor& tensor, Category category) noexcept;

  int id_;
  Mesh mesh_;
  Backend& backend_;
  OpSink* sink_;
  std::optional<Category> omitted_;
  Shared shared_{};
  std::uint32_t next_buffer_{1}, next_fence_, next_seq_{0};
  std::array<std::uint32_t, num_lanes> num_submitted_{};  ///< per lane, signals not counted
  std::array<std::array<std::uint32_t, num_lanes>, num_lanes> num_ordered_{};  ///< [lane][waiting]
  std::unique_ptr<PathNode> root_;
  PathNode* path_;
};

}  // namespace shardmark
