#include "core/cuda/translate/translate.hpp"

#include "core/cuda/translate/parts.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace shardmark::cuda {

// No catch-all: an op without a translation does not compile.
void translate(const Op& op, const Resources& resources, Translation& to) {
  to.calls.clear();
  to.unavailable.clear();
  const auto calls = [&](const auto& o) { append_calls(o, resources, to); };
  std::visit(overloaded{
                 [&](const Matmul& o) { calls(o); },
                 [&](const Add& o) { calls(o); },
                 [&](const AddBias& o) { calls(o); },
                 [&](const SumRows& o) { calls(o); },
                 [&](const Copy& o) { calls(o); },
                 [&](const Fill& o) { calls(o); },
                 [&](const Combine& o) { calls(o); },
                 [&](const Divide& o) { calls(o); },
                 [&](const Gelu& o) { calls(o); },
                 [&](const GeluBackward& o) { calls(o); },
                 [&](const SwiGlu& o) { calls(o); },
                 [&](const SwiGluBackward& o) { calls(o); },
                 [&](const Norm& o) { calls(o); },
                 [&](const NormBackward& o) { calls(o); },
                 [&](const Attention& o) { calls(o); },
                 [&](const AttentionBackward& o) { calls(o); },
                 [&](const Rope& o) { calls(o); },
                 [&](const Embedding& o) { calls(o); },
                 [&](const EmbeddingBackward& o) { calls(o); },
                 [&](const RowMax& o) { calls(o); },
                 [&](const CrossEntropySum& o) { calls(o); },
                 [&](const CrossEntropyLoss& o) { calls(o); },
                 [&](const CrossEntropyBackward& o) { calls(o); },
                 [&](const AllReduce& o) { calls(o); },
                 [&](const AllGather& o) { calls(o); },
                 [&](const ReduceScatter& o) { calls(o); },
                 [&](const AllToAll& o) { calls(o); },
                 [&](const AllToAllV& o) { calls(o); },
                 [&](const Broadcast& o) { calls(o); },
                 [&](const Reduce& o) { calls(o); },
                 [&](const Gather& o) { calls(o); },
                 [&](const Scatter& o) { calls(o); },
                 [&](const SendRecv& o) { calls(o); },
                 [&](const Barrier& o) { calls(o); },
                 [&](const Signal& o) { to.calls.emplace_back(EventRecord{o.fence}); },
                 [&](const Await& o) { to.calls.emplace_back(EventWait{o.fence}); },
             },
             op);
}

Translation translate(const Op& op, const Resources& resources) {
  Translation result;
  translate(op, resources, result);
  return result;
}

std::int64_t workspace_bytes(const Op& op, const Resources& resources) {
  if (const auto* o = std::get_if<Attention>(&op)) return attention_workspace_bytes(*o, resources);
  if (const auto* o = std::get_if<AttentionBackward>(&op))
    return attention_workspace_bytes(*o, resources);
  return 0;
}

void append(Translation& to, const Kernel& kernel, int width) {
  const Extent extent = std::visit([](const auto& k) { return k.extent; }, kernel);
  if (extent.rows > 0 && extent.cols > 0)
    to.calls.push_back(KernelCall{kernel, launch_of(kernel, width)});
}

void append(Translation& to, Translation&& more) {
  if (to.unavailable.empty()) to.unavailable = std::move(more.unavailable);
  std::ranges::move(more.calls, std::back_inserter(to.calls));
}

}  // namespace shardmark::cuda
