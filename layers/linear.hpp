#pragma once

// Tensor-parallel linear layers (Shoeybi et al., Megatron-LM, arXiv 1909.08053).
//
// Letters: T tokens, K input width, N output width; lower-case k, n: this rank's share.
//
//   column-parallel: W split by columns. y_Tn = x_TK W_Kn + b_n. Forward needs no communication
//     (SP: all-gather of x); backward sums the ranks' dx: all-reduce (SP: reduce-scatter).
//   row-parallel: W split by rows. y_TK = sum over ranks of x_Tk W_kN: all-reduce (SP:
//     reduce-scatter), then the bias once. Backward needs none (SP: all-gather of dy).
//
// A column-parallel layer followed by a row-parallel one needs a single reduction per direction.

#include "layers/parallel.hpp"

#include <string>
#include <vector>

namespace shardmark {

/// y_TN = x_TK W_KN + b_N with W and b split by columns.
class ColumnParallelLinear {
 public:
  struct Config {
    std::string name;
    Parallel parallel;
    DType dtype{DType::f32};
    bool accumulate_gradients{false};  ///< see LayerConfig
    std::int64_t tokens{0}, in{0};
    /// This rank's columns: one part per global weight (fused QKV has three). `count` and
    /// `global_first` are columns; `of` is the part's name ("query"), empty for a single weight;
    /// `global_shape` is the global K x N; `init` makes the weight.
    std::vector<ShardPart> parts{};
    bool transposed{
        false};  ///< W is kept as W^T_nK, its columns as rows, like an embedding's table
    bool bias{false};
    bool gather_output{false};  ///< y holds all N columns on every rank
    /// Columns from here on are also held by the other members of `shared` (replicated KV heads);
    /// their gradients are summed over it.
    std::int64_t shared_from{0};
    Group shared{};
  };
  struct State {
    Tensor x, dy, x_full;
    Buffer y, gathered_y, staging, dx, kept_x;
  };

  ColumnParallelLinear(Rank& rank, Config config, TokenScratch& scratch);
  [[nodiscard]] State make_state(Rank& rank) const;

  /// x: all tokens, or the sequence part under SP. Returns y with this rank's columns (or all).
  Tensor forward(Rank& rank, State& state, const Tensor& x) const;
  /// Returns dx in the form of x.
  Tensor backward(Rank& rank, State& state, const Tensor& dy, Part part) const;
  /// Sums the gradients of columns that other ranks hold too. Part of backward, but with
  /// accumulate_gradients the caller's business, once, behind the last micro-batch.
  void sum_gradients(Rank& rank) const;

  void list_weights(NamedTensors& into) const;
  void list_state(const State& state, NamedTensors& into) const;
  [[nodiscard]] std::int64_t columns() const { return columns_; }
  [[nodiscard]] const Config& config() const { return config_; }

 private:
  [[nodiscard]] Tensor gathered_input(const State& state) const;
  void input_gradient(Rank& rank, State& state) const;
  void weight_gradient(Rank& rank, State& state) const;
  void sum_shared(Rank& rank) const;
  /// A tensor whose dim `dim` is this rank's columns.
  [[nodiscard]] NamedTensor named(const std::string& suffix, const Tensor& tensor, std::size_t dim,
                                  Role role, std::string formula) const;

  Config config_;
  TokenScratch* scratch_;
  std::int64_t columns_{0}, global_columns_{0};
  Buffer weight_, bias_, dweight_, dbias_, shared_staging_;
};

/// y_TN = sum over ranks of x_Tk W_kN, + b_N once, with W split by rows.
class RowParallelLinear {
 public:
  struct Config {
    std::string name;
    Parallel parallel;
    DType dtype{DType::f32};
    bool accumulate_gradients{false};  ///< see LayerConfig
    std::int64_t tokens{0}, out{0};
    std::int64_t global_in{0}, first{0}, in{0};  ///< this rank's rows [first, first + in) of W
    Init init{};
    bool bias{false};
  };
  struct State {
    Tensor x, dy;
    Buffer y, dx;
  };

  RowParallelLinear(Rank& rank, Config config, TokenScratch& scratch);
  [[nodiscard]] State make_state(Rank& rank) const;

  /// x_Tk: this rank's columns of all tokens. Returns y of all tokens, or the sequence part.
  Tensor forward(Rank& rank, State& state, const Tensor& x) const;
  /// dy in the form of y; returns dx_Tk.
  Tensor backward(Rank& rank, State& state, const Tensor& dy, Part part) const;

  void list_weights(NamedTensors& into) const;
  void list_state(const State& state, NamedTensors& into) const;

 private:
  Config config_;
  TokenScratch* scratch_;
  Buffer weight_, bias_, dweight_, dbias_;
};

}  // namespace shardmark
