#include "layers/linear.hpp"

#include "core/error.hpp"

namespace shardmark {
namespace {

/// Biases keep the unit of their weight, so that exact data stays a multiple of it.
Init bias_init(const Init& weight) { return {0, 0.1, ExactRule::sparse, weight.unit}; }

bool gathers_input(const Parallel& parallel) { return parallel.sequence_parallel; }

}  // namespace

// ------------------------------------------------------------------------------ column-parallel

ColumnParallelLinear::ColumnParallelLinear(Rank& rank, Config config, TokenScratch& scratch)
    : config_{std::move(config)}, scratch_{&scratch} {
  for (const ShardPart& part : config_.parts) {
    columns_ += part.count;
    global_columns_ += part.global_shape.cols();
  }
  const auto allocate = [&](const Shape& shape, DType dtype, Category category) {
    return rank.allocate(shape, dtype, category);
  };
  const Shape matrix =
      config_.transposed ? Shape{columns_, config_.in} : Shape{config_.in, columns_};
  weight_ = allocate(matrix, config_.dtype, Category::weight);
  dweight_ = allocate(matrix, DType::f32, Category::gradient);
  if (config_.bias) {
    bias_ = allocate({columns_}, config_.dtype, Category::weight);
    dbias_ = allocate({columns_}, DType::f32, Category::gradient);
  }
  if (config_.shared.size > 1) {
    const std::int64_t rows = config_.in + (config_.bias ? 1 : 0);
    shared_staging_ =
        allocate({rows, columns_ - config_.shared_from}, DType::f32, Category::communication);
  }
}

ColumnParallelLinear::State ColumnParallelLinear::make_state(Rank& rank) const {
  State state;
  const Parallel& parallel = config_.parallel;
  const std::int64_t local = parallel.local_tokens(config_.tokens);
  state.y = rank.allocate({config_.tokens, columns_}, config_.dtype, Category::activation);
  state.dx = rank.allocate({local, config_.in}, config_.dtype, Category::gradient);
  if (config_.gather_output && parallel.tp.size > 1) {
    state.staging = rank.allocate({parallel.tp.size * config_.tokens, columns_}, config_.dtype,
                                  Category::communication);
    state.gathered_y =
        rank.allocate({config_.tokens, global_columns_}, config_.dtype, Category::activation);
  }
  if (gathers_input(parallel) && parallel.keep_gathered)
    state.kept_x = rank.allocate({config_.tokens, config_.in}, config_.dtype, Category::activation);
  return state;
}

Tensor ColumnParallelLinear::gathered_input(const State& state) const {
  if (!gathers_input(config_.parallel)) return state.x;
  return config_.parallel.keep_gathered ? state.kept_x.tensor() : scratch_->gathered.tensor();
}

Tensor ColumnParallelLinear::forward(Rank& rank, State& state, const Tensor& x) const {
  const auto scope = rank.scope(config_.name);
  const Parallel& parallel = config_.parallel;
  state.x = x;
  const Tensor x_TK = gathered_input(state);
  std::vector<Fence> ready;
  if (gathers_input(parallel)) ready = gather_chunks(rank, parallel, x, x_TK);
  const bool in_chunks = gathers_input(parallel) || state.staging.tensor();
  const int chunks = in_chunks ? parallel.chunks : 1;
  std::vector<Fence> gathered;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    if (!ready.empty()) rank.await(ready[static_cast<std::size_t>(chunk)], Lane::compute);
    const auto piece = [&](const Tensor& t) {
      return chunks == 1 ? t : token_chunk(parallel, t, chunk);
    };
    const Tensor y_Tn = piece(state.y.tensor());
    matmul_bias(rank, piece(x_TK), weight_.tensor(), bias_.tensor(), y_Tn,
                {.transpose_b = config_.transposed, .reuse_b = chunk > 0});
    if (!state.staging.tensor()) continue;
    rank.order(Lane::compute, Lane::tp);
    all_gather(rank, y_Tn, piece(state.staging.tensor()), parallel.tp, Lane::tp);
    gathered.push_back(rank.signal(Lane::tp));
  }
  if (gathered.empty()) return state.y.tensor();
  for (int chunk = 0; chunk < chunks; ++chunk) {
    rank.await(gathered[static_cast<std::size_t>(chunk)], Lane::compute);
    const Tensor blocks = token_chunk(parallel, state.staging.tensor(), chunk);
    const Tensor y_TN = token_chunk(parallel, state.gathered_y.tensor(), chunk);
    for (int member = 0; member < parallel.tp.size; ++member)
      copy(rank, blocks.row_block(member * y_TN.rows(), y_TN.rows()),
           y_TN.column_block(member * columns_, columns_));
  }
  return state.gathered_y.tensor();
}

/// dx = dy W^T, summed over the ranks on the tp lane.
void ColumnParallelLinear::input_gradient(Rank& rank, State& state) const {
  const Parallel& parallel = config_.parallel;
  const Tensor partial =
      parallel.sequence_parallel ? scratch_->partial.tensor() : state.dx.tensor();
  for (int chunk = 0; chunk < parallel.chunks; ++chunk) {
    matmul(rank, token_chunk(parallel, state.dy, chunk), weight_.tensor(),
           token_chunk(parallel, partial, chunk),
           {.transpose_b = !config_.transposed, .reuse_b = chunk > 0});
    reduce_chunk(rank, parallel, partial, state.dx.tensor(), chunk);
  }
}

void ColumnParallelLinear::weight_gradient(Rank& rank, State& state) const {
  const bool accumulate = config_.accumulate_gradients;
  const Tensor x_TK = gathered_input(state);
  const Tensor& dy_Tn = state.dy;
  matmul(rank, config_.transposed ? dy_Tn : x_TK, config_.transposed ? x_TK : dy_Tn,
         dweight_.tensor(), {.transpose_a = true, .accumulate = accumulate});
  if (config_.bias) sum_rows(rank, dy_Tn, dbias_.tensor(), accumulate);
  if (config_.shared.size > 1 && !accumulate) sum_shared(rank);
}

void ColumnParallelLinear::sum_gradients(Rank& rank) const {
  if (config_.shared.size == 1) return;
  const auto scope = rank.scope(config_.name);
  sum_shared(rank);
}

/// Sums the gradients of columns that other ranks hold too: packed, all-reduced, put back.
void ColumnParallelLinear::sum_shared(Rank& rank) const {
  const auto scope = rank.scope("shared_heads");
  const std::int64_t first = config_.shared_from, count = columns_ - first;
  const Tensor staging = shared_staging_.tensor();
  const Tensor weights = dweight_.tensor().column_block(first, count);
  const Tensor weight_rows = staging.row_block(0, config_.in);
  copy(rank, weights, weight_rows);
  Tensor biases, bias_row;
  if (config_.bias) {
    biases = dbias_.tensor().row_block(first, count);
    bias_row = staging.row_block(config_.in, 1).reshape({count});
    copy(rank, biases, bias_row);
  }
  rank.order(Lane::compute, Lane::tp);
  all_reduce(rank, staging, config_.shared, Lane::tp);
  rank.order(Lane::tp, Lane::compute);
  copy(rank, weight_rows, weights);
  if (config_.bias) copy(rank, bias_row, biases);
}

Tensor ColumnParallelLinear::backward(Rank& rank, State& state, const Tensor& dy, Part part) const {
  const auto scope = rank.scope(config_.name);
  const Parallel& parallel = config_.parallel;
  if (has_input(part))
    state.dy =
        state.staging.tensor() ? dy.column_block(parallel.tp.position * columns_, columns_) : dy;
  // Without overlap every wait follows its communication at once. With it, the re-gather runs
  // behind the matmuls of dx, and the reduction of dx behind the weight gradient.
  const bool regathers = has_weight(part) && gathers_input(parallel) && !parallel.keep_gathered;
  Fence gathered{}, reduced{};
  if (regathers) {
    gathered = gather_tokens(rank, parallel, state.x, scratch_->gathered.tensor());
    if (!parallel.overlap) rank.await(gathered, Lane::compute);
  }
  if (has_input(part)) {
    input_gradient(rank, state);
    // With overlap, the sum over shared heads waits for the tp lane, and so for dx, anyway.
    const bool waits_anyway = parallel.overlap && has_weight(part) && config_.shared.size > 1 &&
                              !config_.accumulate_gradients;
    if (parallel.tp.size > 1 && !waits_anyway) reduced = rank.signal(Lane::tp);
    if (reduced.id != 0 && !parallel.overlap) rank.await(reduced, Lane::compute);
  }
  if (regathers && parallel.overlap) rank.await(gathered, Lane::compute);
  if (has_weight(part)) weight_gradient(rank, state);
  if (reduced.id != 0 && parallel.overlap) rank.await(reduced, Lane::compute);
  return state.dx.tensor();
}

NamedTensor ColumnParallelLinear::named(const std::string& suffix, const Tensor& tensor,
                                        std::size_t dim, Role role, std::string formula) const {
  std::vector<ShardPart> parts;
  std::int64_t first = 0;
  for (ShardPart part : config_.parts) {
    part.of = part.of.empty() ? config_.name + suffix : message(config_.name, '/', part.of, suffix);
    Shape global = tensor.shape;
    global.set(dim, part.global_shape.cols());
    part.global_shape = global;
    part.local_first = first;
    first += part.count;
    if (tensor.shape.num_dims() == 1) part.init = bias_init(part.init);
    parts.push_back(std::move(part));
  }
  return {config_.name + suffix, tensor, role, dim, std::move(parts), std::move(formula)};
}

void ColumnParallelLinear::list_weights(NamedTensors& into) const {
  const std::size_t dim = config_.transposed ? 0 : 1;
  into.push_back(named("/weight", weight_.tensor(), dim, Role::weight, ""));
  into.push_back(named("/weight_grad", dweight_.tensor(), dim, Role::gradient,
                       config_.transposed ? "y_grad^T @ x" : "x^T @ y_grad"));
  if (!config_.bias) return;
  into.push_back(named("/bias", bias_.tensor(), 0, Role::weight, ""));
  into.push_back(
      named("/bias_grad", dbias_.tensor(), 0, Role::gradient, "sum of y_grad over tokens"));
}

void ColumnParallelLinear::list_state(const State& state, NamedTensors& into) const {
  const std::string product = config_.transposed ? "x @ weight^T" : "x @ weight";
  const std::string formula = config_.bias ? product + " + bias" : product;
  if (const Tensor& y_TN = state.gathered_y.tensor())
    into.push_back(replicated(config_.name + "/y", y_TN, Role::activation, formula));
  else
    into.push_back(named("/y", state.y.tensor(), 1, Role::activation, formula));
  into.back().per_token = true;
  into.push_back(token_tensor(config_.parallel, config_.name + "/x_grad", state.dx.tensor(),
                              config_.tokens, Role::gradient,
                              config_.transposed ? "y_grad @ weight" : "y_grad @ weight^T"));
}

// --------------------------------------------------------------------------------- row-parallel

RowParallelLinear::RowParallelLinear(Rank& rank, Config config, TokenScratch& scratch)
    : config_{std::move(config)}, scratch_{&scratch} {
  weight_ = rank.allocate({config_.in, config_.out}, config_.dtype, Category::weight);
  dweight_ = rank.allocate({config_.in, config_.out}, DType::f32, Category::gradient);
  if (config_.bias) {
    bias_ = rank.allocate({config_.out}, config_.dtype, Category::weight);
    dbias_ = rank.allocate({config_.out}, DType::f32, Category::gradient);
  }
}

RowParallelLinear::State RowParallelLinear::make_state(Rank& rank) const {
  State state;
  const std::int64_t local = config_.parallel.local_tokens(config_.tokens);
  state.y = rank.allocate({local, config_.out}, config_.dtype, Category::activation);
  state.dx = rank.allocate({config_.tokens, config_.in}, config_.dtype, Category::gradient);
  return state;
}

Tensor RowParallelLinear::forward(Rank& rank, State& state, const Tensor& x) const {
  const auto scope = rank.scope(config_.name);
  const Parallel& parallel = config_.parallel;
  state.x = x;
  const Tensor y = state.y.tensor();
  const Tensor partial = parallel.sequence_parallel ? scratch_->partial.tensor() : y;
  for (int chunk = 0; chunk < parallel.chunks; ++chunk) {
    matmul(rank, token_chunk(parallel, x, chunk), weight_.tensor(),
           token_chunk(parallel, partial, chunk), {.reuse_b = chunk > 0});
    reduce_chunk(rank, parallel, partial, y, chunk);
  }
  if (parallel.tp.size > 1) rank.order(Lane::tp, Lane::compute);
  if (config_.bias) add_bias(rank, y, bias_.tensor(), y);
  return y;
}

Tensor RowParallelLinear::backward(Rank& rank, State& state, const Tensor& dy, Part part) const {
  const auto scope = rank.scope(config_.name);
  const Parallel& parallel = config_.parallel;
  if (has_input(part)) state.dy = dy;
  Tensor dy_TN = state.dy;
  std::vector<Fence> gathered;
  if (parallel.sequence_parallel) {
    dy_TN = scratch_->gathered.tensor();
    if (has_input(part))
      gathered = gather_chunks(rank, parallel, state.dy, dy_TN);
    else
      rank.await(gather_tokens(rank, parallel, state.dy, dy_TN), Lane::compute);
  }
  if (has_input(part))
    for (int chunk = 0; chunk < parallel.chunks; ++chunk) {
      if (!gathered.empty()) rank.await(gathered[static_cast<std::size_t>(chunk)], Lane::compute);
      matmul(rank, token_chunk(parallel, dy_TN, chunk), weight_.tensor(),
             token_chunk(parallel, state.dx.tensor(), chunk),
             {.transpose_b = true, .reuse_b = chunk > 0});
    }
  if (has_weight(part)) {
    const bool accumulate = config_.accumulate_gradients;
    matmul(rank, state.x, dy_TN, dweight_.tensor(),
           {.transpose_a = true, .accumulate = accumulate});
    if (config_.bias) sum_rows(rank, dy_TN, dbias_.tensor(), accumulate);
  }
  return state.dx.tensor();
}

void RowParallelLinear::list_weights(NamedTensors& into) const {
  const auto rows = [&](const std::string& suffix, const Tensor& tensor, Role role,
                        const std::string& formula) {
    const std::string name = config_.name + suffix;
    ShardPart part{name,        {config_.global_in, config_.out}, 0, config_.first, config_.in,
                   config_.init};
    into.push_back({name, tensor, role, 0, {std::move(part)}, formula});
  };
  rows("/weight", weight_.tensor(), Role::weight, "");
  rows("/weight_grad", dweight_.tensor(), Role::gradient, "x^T @ y_grad");
  if (!config_.bias) return;
  into.push_back(replicated(config_.name + "/bias", bias_.tensor(), Role::weight, "",
                            bias_init(config_.init)));
  into.push_back(replicated(config_.name + "/bias_grad", dbias_.tensor(), Role::gradient,
                            "sum of y_grad over tokens"));
}

void RowParallelLinear::list_state(const State& state, NamedTensors& into) const {
  into.push_back(token_tensor(config_.parallel, config_.name + "/y", state.y.tensor(),
                              config_.tokens, Role::activation, "x @ weight + bias"));
  ShardPart part{config_.name + "/x_grad",
                 {config_.tokens, config_.global_in},
                 0,
                 config_.first,
                 config_.in,
                 {}};
  into.push_back(column_tensor(config_.name + "/x_grad", state.dx.tensor(), Role::gradient,
                               {std::move(part)}, "y_grad @ weight^T"));
}

}  // namespace shardmark
