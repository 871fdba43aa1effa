#include "core/reference/matrix.hpp"
#include "core/reference/ops.hpp"

#include <cmath>
#include <numbers>

namespace shardmark::reference {
namespace {

constexpr double cubic = 0.044715;

double gelu(double x, GeluKind kind) {
  if (kind == GeluKind::erf) return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + cubic * x * x * x)));
}

double gelu_slope(double x, GeluKind kind) {
  if (kind == GeluKind::erf) {
    const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
    return 0.5 * (1 + std::erf(x / std::numbers::sqrt2)) + x * density;
  }
  const double factor = std::sqrt(2 / std::numbers::pi);
  const double tanh = std::tanh(factor * (x + cubic * x * x * x));
  return 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh * tanh) * factor * (1 + 3 * cubic * x * x);
}

double sigmoid(double z) { return 1 / (1 + std::exp(-z)); }

}  // namespace

void run(const Gelu& op) {
  Matrix y{op.x};
  for (std::int64_t i = 0; i < op.x.numel(); ++i) y[i] = gelu(y[i], op.kind);
  y.store(op.y);
}

void run(const GeluBackward& op) {
  const Matrix x{op.x};
  Matrix dx{op.dy};
  for (std::int64_t i = 0; i < op.x.numel(); ++i) dx[i] *= gelu_slope(x[i], op.kind);
  dx.store(op.dx);
}

void run(const SwiGlu& op) {
  const Matrix gate{op.gate};
  Matrix y{op.up};
  for (std::int64_t i = 0; i < op.up.numel(); ++i) y[i] *= gate[i] * sigmoid(gate[i]);
  y.store(op.y);
}

void run(const SwiGluBackward& op) {
  const Matrix gate{op.gate}, up{op.up}, dy{op.dy};
  Matrix dgate{gate.rows(), gate.cols()}, dup{gate.rows(), gate.cols()};
  for (std::int64_t i = 0; i < op.gate.numel(); ++i) {
    const double z = gate[i];
    const double s = sigmoid(z);
    dup[i] = dy[i] * z * s;
    dgate[i] = dy[i] * up[i] * (s + z * s * (1 - s));
  }
  dgate.store(op.dgate);
  dup.store(op.dup);
}

void run(const Norm& op) {
  const Matrix x{op.x}, gain{op.gain}, bias{op.bias};
  const auto cols = static_cast<double>(x.cols());
  Matrix y{x.rows(), x.cols()}, stats{x.rows(), 2};
  for (std::int64_t r = 0; r < x.rows(); ++r) {
    double mean = 0, variance = 0;
    if (op.kind == NormKind::layer)
      for (std::int64_t c = 0; c < x.cols(); ++c) mean += x(r, c) / cols;
    for (std::int64_t c = 0; c < x.cols(); ++c)
      variance += (x(r, c) - mean) * (x(r, c) - mean) / cols;
    const double scale = 1 / std::sqrt(variance + static_cast<double>(op.epsilon));
    for (std::int64_t c = 0; c < x.cols(); ++c)
      y(r, c) = (x(r, c) - mean) * scale * gain[c] + (op.bias ? bias[c] : 0.0);
    stats(r, 0) = mean;
    stats(r, 1) = scale;
  }
  y.store(op.y);
  stats.store(op.stats);
}

void run(const NormBackward& op) {
  const Matrix x{op.x}, gain{op.gain}, stats{op.stats}, dy{op.dy};
  const auto cols = static_cast<double>(x.cols());
  const auto before = [&](const Tensor& sum) {
    return op.accumulate && sum ? Matrix{sum} : Matrix{1, x.cols()};
  };
  Matrix dx{x.rows(), x.cols()}, dgain = before(op.dgain), dbias = before(op.dbias);
  for (std::int64_t r = 0; r < x.rows(); ++r) {
    const double mean = stats(r, 0), scale = stats(r, 1);
    double mean_slope = 0, mean_projection = 0;
    for (std::int64_t c = 0; c < x.cols(); ++c) {
      const double normalised = (x(r, c) - mean) * scale;
      const double slope = dy(r, c) * gain[c];
      if (op.kind == NormKind::layer) mean_slope += slope / cols;
      mean_projection += slope * normalised / cols;
      dgain[c] += dy(r, c) * normalised;
      dbias[c] += dy(r, c);
    }
    for (std::int64_t c = 0; c < x.cols(); ++c) {
      const double normalised = (x(r, c) - mean) * scale;
      dx(r, c) = scale * (dy(r, c) * gain[c] - mean_slope - normalised * mean_projection);
    }
  }
  dx.store(op.dx);
  dgain.store(op.dgain);
  if (op.dbias) dbias.store(op.dbias);
}

}  // namespace shardmark::reference
