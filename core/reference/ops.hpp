#pragma once

// One function per compute op: load as f64, compute as core/ops.hpp says, store.

#include "core/ops.hpp"

namespace shardmark::reference {

void run(const Matmul& op);
void run(const Add& op);
void run(const AddBias& op);
void run(const SumRows& op);
void run(const Copy& op);
void run(const Fill& op);
void run(const Combine& op);
void run(const Divide& op);
void run(const Gelu& op);
void run(const GeluBackward& op);
void run(const SwiGlu& op);
void run(const SwiGluBackward& op);
void run(const Norm& op);
void run(const NormBackward& op);
void run(const Attention& op);
void run(const AttentionBackward& op);
void run(const Rope& op);
void run(const Embedding& op);
void run(const EmbeddingBackward& op);
void run(const RowMax& op);
void run(const CrossEntropySum& op);
void run(const CrossEntropyLoss& op);
void run(const CrossEntropyBackward& op);

}  // namespace shardmark::reference
