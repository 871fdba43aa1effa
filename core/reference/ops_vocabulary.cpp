#include "core/reference/matrix.hpp"
#include "core/reference/ops.hpp"

#include <algorithm>
#include <cmath>

namespace shardmark::reference {
namespace {

/// Position of token t's id in a shard of `size` ids from `first` on; -1 when it is elsewhere.
std::int64_t local_id(const Matrix& ids, std::int64_t t, std::int64_t first, std::int64_t size) {
  const std::int64_t local = static_cast<std::int64_t>(ids[t]) - first;
  return local >= 0 && local < size ? local : -1;
}

}  // namespace

void run(const Embedding& op) {
  const Matrix ids{op.ids}, table{op.table};
  Matrix y = op.accumulate ? Matrix{op.y} : Matrix{op.y.rows(), op.y.cols()};
  for (std::int64_t t = 0; t < y.rows(); ++t) {
    const std::int64_t row = local_id(ids, t, op.first_row, table.rows());
    if (row < 0) continue;
    for (std::int64_t c = 0; c < y.cols(); ++c) y(t, c) += table(row, c);
  }
  y.store(op.y);
}

void run(const EmbeddingBackward& op) {
  const Matrix ids{op.ids}, dy{op.dy};
  Matrix dtable = op.accumulate ? Matrix{op.dtable} : Matrix{op.dtable.rows(), op.dtable.cols()};
  for (std::int64_t t = 0; t < dy.rows(); ++t) {
    const std::int64_t row = local_id(ids, t, op.first_row, dtable.rows());
    if (row < 0) continue;
    for (std::int64_t c = 0; c < dy.cols(); ++c) dtable(row, c) += dy(t, c);
  }
  dtable.store(op.dtable);
}

void run(const RowMax& op) {
  const Matrix logits{op.logits};
  Matrix maximum{logits.rows(), 1};
  for (std::int64_t t = 0; t < logits.rows(); ++t)
    maximum[t] = *std::max_element(logits.row(t), logits.row(t) + logits.cols());
  maximum.store(op.maximum);
}

void run(const CrossEntropySum& op) {
  const Matrix logits{op.logits}, targets{op.targets}, maximum{op.maximum};
  Matrix partials{2, logits.rows()};
  for (std::int64_t t = 0; t < logits.rows(); ++t) {
    for (std::int64_t c = 0; c < logits.cols(); ++c)
      partials(0, t) += std::exp(logits(t, c) - maximum[t]);
    const std::int64_t target = local_id(targets, t, op.first_column, logits.cols());
    partials(1, t) = target < 0 ? 0 : logits(t, target);
  }
  partials.store(op.partials);
}

void run(const CrossEntropyLoss& op) {
  const Matrix maximum{op.maximum}, partials{op.partials};
  const std::int64_t tokens = op.loss.numel();
  Matrix loss{tokens, 1};
  for (std::int64_t t = 0; t < tokens; ++t)
    loss[t] = std::log(partials[t]) + maximum[t] - partials[tokens + t];
  loss.store(op.loss);
}

void run(const CrossEntropyBackward& op) {
  const Matrix logits{op.logits}, targets{op.targets}, maximum{op.maximum}, partials{op.partials};
  Matrix dlogits{logits.rows(), logits.cols()};
  for (std::int64_t t = 0; t < logits.rows(); ++t) {
    const std::int64_t target = local_id(targets, t, op.first_column, logits.cols());
    for (std::int64_t c = 0; c < logits.cols(); ++c) {
      const double probability = std::exp(logits(t, c) - maximum[t]) / partials[t];
      dlogits(t, c) = (probability - (c == target ? 1 : 0)) * static_cast<double>(op.scale);
    }
  }
  dlogits.store(op.dlogits);
}

}  // namespace shardmark::reference
