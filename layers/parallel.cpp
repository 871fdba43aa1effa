#include "layers/parallel.hpp"

#include "core/error.hpp"

namespace shardmark {

Parallel Parallel::at(int first, int member) const {
  Parallel view = *this;
  int stride = 1;
  const auto along = [&](Axis axis, int size) {
    const int position = member / stride % size;
    const Group group{axis, first + member - position * stride, stride, size, position};
    stride *= size;
    return group;
  };
  view.tp = along(Axis::tp, tp.size);
  view.context.cp = along(Axis::cp, context.cp.size);
  view.pp = along(Axis::pp, pp.size);
  view.dp = along(Axis::dp, dp.size);
  return view;
}

TokenScratch make_token_scratch(Rank& rank, const Parallel& parallel, const Shape& full,
                                DType dtype) {
  if (!parallel.sequence_parallel) return {};
  return {rank.allocate(full, dtype, Category::communication),
          rank.allocate(full, dtype, Category::communication)};
}

Tensor token_chunk(const Parallel& parallel, const Tensor& x, int chunk) {
  SHARDMARK_CHECK(x.shape[0] % parallel.chunks == 0, x.shape[0], " tokens do not split into ",
                  parallel.chunks, " chunks");
  const std::int64_t rows = x.shape[0] / parallel.chunks;
  return x.row_block(chunk * rows, rows);
}

std::vector<Fence> gather_chunks(Rank& rank, const Parallel& parallel, const Tensor& x_local,
                                 const Tensor& x_full) {
  rank.order(Lane::compute, Lane::tp);
  std::vector<Fence> fences;
  for (int chunk = 0; chunk < parallel.chunks; ++chunk) {
    all_gather(rank, token_chunk(parallel, x_local, chunk), token_chunk(parallel, x_full, chunk),
               parallel.tp, Lane::tp);
    fences.push_back(rank.signal(Lane::tp));
  }
  return fences;
}

Fence gather_tokens(Rank& rank, const Parallel& parallel, const Tensor& x_local,
                    const Tensor& x_full) {
  rank.order(Lane::compute, Lane::tp);
  for (int chunk = 0; chunk < parallel.chunks; ++chunk)
    all_gather(rank, token_chunk(parallel, x_local, chunk), token_chunk(parallel, x_full, chunk),
               parallel.tp, Lane::tp);
  return rank.signal(Lane::tp);
}

void reduce_chunk(Rank& rank, const Parallel& parallel, const Tensor& partial,
                  const Tensor& out_local, int chunk) {
  if (parallel.tp.size == 1) return;
  rank.order(Lane::compute, Lane::tp);
  const Tensor piece = token_chunk(parallel, partial, chunk);
  if (parallel.sequence_parallel)
    reduce_scatter(rank, piece, token_chunk(parallel, out_local, chunk), parallel.tp, Lane::tp);
  else
    all_reduce(rank, piece, parallel.tp, Lane::tp);
}

void reduce_gradient(Rank& rank, const Parallel& parallel, const Tensor& gradient) {
  rank.order(Lane::compute, Lane::tp);
  all_reduce(rank, gradient, parallel.tp, Lane::tp);
  if (!parallel.overlap) rank.order(Lane::tp, Lane::compute);
}

NamedTensor token_tensor(const Parallel& parallel, std::string name, const Tensor& local,
                         std::int64_t tokens, Role role, std::string formula, Init init) {
  NamedTensor named{name, local, role, 0, {}, std::move(formula), true};
  Shape global = local.shape;
  global.set(0, tokens);
  if (!parallel.sequence_parallel) {
    named.parts.push_back({name, global, 0, 0, tokens, init});
    return named;
  }
  const std::int64_t chunk_rows = tokens / parallel.chunks;
  const std::int64_t part_rows = chunk_rows / parallel.tp.size;
  for (std::int64_t chunk = 0; chunk < parallel.chunks; ++chunk)
    named.parts.push_back({name, global, chunk * part_rows,
                           chunk * chunk_rows + parallel.tp.position * part_rows, part_rows, init});
  return named;
}

NamedTensor column_tensor(std::string name, const Tensor& tensor, Role role,
                          std::vector<ShardPart> parts, std::string formula) {
  return {std::move(name),    tensor, role, tensor.shape.num_dims() - 1, std::move(parts),
          std::move(formula), true};
}

}  // namespace shardmark
