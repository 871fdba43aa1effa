#include "core/cuda/translate/translate.hpp"

#include "core/cuda/translate/parts.hpp"

namespace shardmark::cuda {

// No catch-all: an op without a translation does not compile.
Translation translate(const Op& op, const Resources& resources) {
  const auto calls = [&](const auto& o) { return calls_of(o, resources); };
  return std::visit(overloaded{
                        [&](const Matmul& o) { return calls(o); },
                        [&](const Add& o) { return calls(o); },
                        [&](const AddBias& o) { return calls(o); },
                        [&](const SumRows& o) { return calls(o); },
                        [&](const Copy& o) { return calls(o); },
                        [&](const Fill& o) { return calls(o); },
                        [&](const Combine& o) { return calls(o); },
                        [&](const Divide& o) { return calls(o); },
                        [&](const Gelu& o) { return calls(o); },
                        [&](const GeluBackward& o) { return calls(o); },
                        [&](const SwiGlu& o) { return calls(o); },
                        [&](const SwiGluBackward& o) { return calls(o); },
                        [&](const Norm& o) { return calls(o); },
                        [&](const NormBackward& o) { return calls(o); },
                        [&](const Attention& o) { return calls(o); },
                        [&](const AttentionBackward& o) { return calls(o); },
                        [&](const Rope& o) { return calls(o); },
                        [&](const Embedding& o) { return calls(o); },
                        [&](const EmbeddingBackward& o) { return calls(o); },
                        [&](const RowMax& o) { return calls(o); },
                        [&](const CrossEntropySum& o) { return calls(o); },
                        [&](const CrossEntropyLoss& o) { return calls(o); },
                        [&](const CrossEntropyBackward& o) { return calls(o); },
                        [&](const AllReduce& o) { return calls(o); },
                        [&](const AllGather& o) { return calls(o); },
                        [&](const ReduceScatter& o) { return calls(o); },
                        [&](const AllToAll& o) { return calls(o); },
                        [&](const AllToAllV& o) { return calls(o); },
                        [&](const Broadcast& o) { return calls(o); },
                        [&](const Reduce& o) { return calls(o); },
                        [&](const Gather& o) { return calls(o); },
                        [&](const Scatter& o) { return calls(o); },
                        [&](const SendRecv& o) { return calls(o); },
                        [&](const Barrier& o) { return calls(o); },
                        [](const Signal& o) {
                          return Translation{{EventRecord{o.fence}}, {}};
                        },
                        [](const Await& o) {
                          return Translation{{EventWait{o.fence}}, {}};
                        },
                    },
                    op);
}

std::int64_t workspace_bytes(const Op& op) {
  if (const auto* o = std::get_if<Attention>(&op)) return attention_workspace_bytes(*o);
  if (const auto* o = std::get_if<AttentionBackward>(&op)) return attention_workspace_bytes(*o);
  return 0;
}

void append(Translation& to, const Kernel& kernel, int width) {
  const Extent extent = std::visit([](const auto& k) { return k.extent; }, kernel);
  if (extent.rows > 0 && extent.cols > 0)
    to.calls.push_back(KernelCall{kernel, launch_of(kernel, width)});
}

void append(Translation& to, const Translation& more) {
  to.calls.insert(to.calls.end(), more.calls.begin(), more.calls.end());
}

}  // namespace shardmark::cuda
