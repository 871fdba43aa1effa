// In place of attention_library.cpp in a build without the headers of cuDNN's frontend.

#include "core/cuda/attention_library.cuh"
#include "core/error.hpp"

namespace shardmark::cuda {
namespace {

constexpr const char* reason =
    "this build has no fused attention: the headers of cuDNN's frontend were not found "
    "(pip install nvidia-cudnn-frontend; cmake -DSHARDMARK_CUDNN_FRONTEND_INCLUDE=...)";

}  // namespace

struct AttentionLibrary::Graphs {};

AttentionLibrary::AttentionLibrary() { support_.why_not = reason; }
AttentionLibrary::~AttentionLibrary() = default;

const AttentionSupport& AttentionLibrary::support(const FusedAttention&) { return support_; }

void AttentionLibrary::run(const FusedAttention&, std::byte*, cudaStream_t) { throw Error{reason}; }

std::string objection_to(const FusedAttention&, int) { return reason; }

}  // namespace shardmark::cuda
