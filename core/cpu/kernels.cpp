#include "core/cpu/kernels.hpp"

#include "core/cpu/kernels_internal.hpp"
#include "core/cpu/matmul.hpp"
#include "core/error.hpp"

#include <algorithm>

namespace shardmark {
namespace {

/// oneDNN leaves out work when a parallel region gets fewer threads than it asked for, so
/// OMP_THREAD_LIMIT is heeded beforehand.
int usable_threads(int num_threads) { return std::min(num_threads, omp_get_thread_limit()); }

}  // namespace

class Kernels::Implementation {
 public:
  Implementation(int num_threads, Arena& arena)
      : num_threads_{usable_threads(num_threads)}, scratch_{arena} {
    SHARDMARK_CHECK(num_threads > 0, "kernels on ", num_threads, " threads");
  }

  const char* run(const Op& op, TileHook& hook) {
    // A property of the calling thread: oneDNN's parallel regions take their size from it.
    omp_set_num_threads(num_threads_);
    const kernels::Context context{num_threads_, hook, scratch_, rotary_};
    const auto simple = [&](const auto& o) { return kernels::run(o, context); };
    return std::visit(overloaded{
                          [&](const Matmul& o) { return matmul_.run(o, context); },
                          [&](const Add& o) { return simple(o); },
                          [&](const AddBias& o) { return simple(o); },
                          [&](const SumRows& o) { return simple(o); },
                          [&](const Copy& o) { return simple(o); },
                          [&](const Fill& o) { return simple(o); },
                          [&](const Combine& o) { return simple(o); },
                          [&](const Divide& o) { return simple(o); },
                          [&](const Gelu& o) { return simple(o); },
                          [&](const GeluBackward& o) { return simple(o); },
                          [&](const SwiGlu& o) { return simple(o); },
                          [&](const SwiGluBackward& o) { return simple(o); },
                          [&](const Norm& o) { return simple(o); },
                          [&](const NormBackward& o) { return simple(o); },
                          [&](const Attention& o) { return simple(o); },
                          [&](const AttentionBackward& o) { return simple(o); },
                          [&](const Rope& o) { return simple(o); },
                          [&](const Embedding& o) { return simple(o); },
                          [&](const EmbeddingBackward& o) { return simple(o); },
                          [&](const RowMax& o) { return simple(o); },
                          [&](const CrossEntropySum& o) { return simple(o); },
                          [&](const CrossEntropyLoss& o) { return simple(o); },
                          [&](const CrossEntropyBackward& o) { return simple(o); },
                          [&](const Communication auto&) { return not_a_kernel(op); },
                          [&](const Signal&) { return not_a_kernel(op); },
                          [&](const Await&) { return not_a_kernel(op); },
                      },
                      op);
  }

 private:
  static const char* not_a_kernel(const Op& op) {
    throw Error{message(name_of(op), " is not a compute op")};
  }

  int num_threads_;
  kernels::Scratch scratch_;
  kernels::RotaryTables rotary_;
  kernels::MatmulRunner matmul_;
};

Kernels::Kernels(int num_threads, Arena& arena)
    : implementation_{std::make_unique<Implementation>(num_threads, arena)} {}
Kernels::~Kernels() = default;

const char* Kernels::run(const Op& op, TileHook& hook) { return implementation_->run(op, hook); }

std::int64_t workspace_bytes(const Op& op, int num_threads) {
  if (const auto* o = std::get_if<Matmul>(&op)) return kernels::matmul_scratch_bytes(*o);
  if (const auto* o = std::get_if<Attention>(&op))
    return kernels::attention_scratch_bytes(*o, usable_threads(num_threads));
  if (const auto* o = std::get_if<AttentionBackward>(&op))
    return kernels::attention_scratch_bytes(*o, usable_threads(num_threads));
  return 0;
}

}  // namespace shardmark
