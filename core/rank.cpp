#include "core/rank.hpp"

#include "core/error.hpp"

namespace shardmark {

Buffer::~Buffer() {
  if (rank_ != nullptr) rank_->release(tensor_, category_);
}

Rank::Rank(int id, const Mesh& mesh, Backend& backend, OpSink* sink)
    : id_{id},
      mesh_{mesh},
      backend_{backend},
      sink_{sink},
      next_fence_{backend.first_fence()},
      root_{std::make_unique<PathNode>()},
      path_{root_.get()} {
  SHARDMARK_CHECK(id >= 0 && id < mesh.size(), "rank ", id, " is outside a mesh of ", mesh.size());
}

Buffer Rank::allocate(const Shape& shape, DType dtype, Category category) {
  if (shared_.pool == nullptr || category != shared_.category)
    return make_buffer(shape, dtype, category);
  std::vector<Buffer>& pool = *shared_.pool;
  if (shared_.next == pool.size()) pool.push_back(make_buffer(shape, dtype, category));
  const Tensor& tensor = pool[shared_.next++].tensor();
  SHARDMARK_CHECK(tensor.shape == shape && tensor.dtype == dtype, "buffer ", shared_.next - 1,
                  " of a pool has another shape or type");
  return Buffer{tensor};
}

Buffer Rank::make_buffer(const Shape& shape, DType dtype, Category category) {
  Tensor tensor{next_buffer_++, dtype, shape, 0, shape.cols(), nullptr};
  if (category == omitted_) return Buffer{tensor};
  tensor.data = backend_.allocate(tensor.bytes(), category);
  if (sink_ != nullptr) sink_->on_memory({next_seq_, tensor.buffer, category, tensor.bytes()});
  return Buffer{*this, tensor, category};
}

void Rank::release(const Tensor& tensor, Category category) noexcept {
  backend_.deallocate(tensor.data, tensor.bytes());
  if (sink_ != nullptr) sink_->on_memory({next_seq_, tensor.buffer, category, -tensor.bytes()});
}

void Rank::submit(const Op& op, Lane lane) {
  const OpRecord record{next_seq_++, lane, &path_->path, op};
  if (!std::holds_alternative<Signal>(op)) ++num_submitted_[index_of(lane)];
  if (sink_ != nullptr) sink_->on_op(record);
  backend_.execute(record);
}

Fence Rank::signal(Lane lane) {
  const Fence fence{next_fence_++};
  submit(Signal{fence}, lane);
  return fence;
}

void Rank::await(Fence fence, Lane lane) { submit(Await{fence}, lane); }

void Rank::order(Lane lane, Lane waiting) {
  std::uint32_t& ordered = num_ordered_[index_of(lane)][index_of(waiting)];
  if (ordered == num_submitted_[index_of(lane)]) return;
  ordered = num_submitted_[index_of(lane)];
  await(signal(lane), waiting);
}

Rank::Scope::Scope(Rank& rank, std::string_view name) : rank_{rank}, parent_{rank.path_} {
  auto& children = parent_->children;
  auto found = children.find(name);
  if (found == children.end()) {
    auto node = std::make_unique<PathNode>();
    node->path = parent_->path.empty() ? std::string{name} : message(parent_->path, '/', name);
    found = children.emplace(std::string{name}, std::move(node)).first;
  }
  rank.path_ = found->second.get();
}

}  // namespace shardmark
