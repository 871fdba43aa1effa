#include "core/reference/backend.hpp"

#include "core/error.hpp"
#include "core/reference/ops.hpp"

#include <cstring>
#include <new>

namespace shardmark {
namespace {

constexpr std::align_val_t alignment{64};

void run(const Op& op) {
  using reference::run;
  std::visit(overloaded{
                 [](const Matmul& o) { run(o); },
                 [](const Add& o) { run(o); },
                 [](const AddBias& o) { run(o); },
                 [](const SumRows& o) { run(o); },
                 [](const Copy& o) { run(o); },
                 [](const Fill& o) { run(o); },
                 [](const Combine& o) { run(o); },
                 [](const Divide& o) { run(o); },
                 [](const Gelu& o) { run(o); },
                 [](const GeluBackward& o) { run(o); },
                 [](const SwiGlu& o) { run(o); },
                 [](const SwiGluBackward& o) { run(o); },
                 [](const Norm& o) { run(o); },
                 [](const NormBackward& o) { run(o); },
                 [](const Attention& o) { run(o); },
                 [](const AttentionBackward& o) { run(o); },
                 [](const Rope& o) { run(o); },
                 [](const Embedding& o) { run(o); },
                 [](const EmbeddingBackward& o) { run(o); },
                 [](const RowMax& o) { run(o); },
                 [](const CrossEntropySum& o) { run(o); },
                 [](const CrossEntropyLoss& o) { run(o); },
                 [](const CrossEntropyBackward& o) { run(o); },
                 [](const AllReduce& o) {
                   if (o.y) run(Copy{o.x, o.y});
                 },
                 [](const SendRecv& o) {
                   if (o.to >= 0 && o.from >= 0) run(Copy{o.x, o.y});
                 },
                 [](const Barrier&) {},
                 [](const Communication auto& o) {
                   run(Copy{o.x, o.y});
                 },
                 [](const Signal&) {},
                 [](const Await&) {},
             },
             op);
}

}  // namespace

std::byte* ReferenceBackend::allocate(std::int64_t bytes, Category) {
  return static_cast<std::byte*>(::operator new(static_cast<std::size_t>(bytes), alignment));
}

void ReferenceBackend::deallocate(std::byte* data, std::int64_t) noexcept {
  ::operator delete(data, alignment);
}

void ReferenceBackend::execute(const OpRecord& record) {
  const Group* const group = group_of(record.op);
  SHARDMARK_CHECK(group == nullptr || group->size == 1, *record.path, ": ", name_of(record.op),
                  " over ", group->to_string(), "; the reference backend is for one rank");
  run(record.op);
}

void ReferenceBackend::write(const Tensor& to, const void* from) {
  SHARDMARK_CHECK(to.contiguous(), "write needs a contiguous tensor");
  std::memcpy(to.data, from, static_cast<std::size_t>(to.bytes()));
}

void ReferenceBackend::read(const Tensor& from, void* to) {
  SHARDMARK_CHECK(from.contiguous(), "read needs a contiguous tensor");
  std::memcpy(to, from.data, static_cast<std::size_t>(from.bytes()));
}

}  // namespace shardmark
