// FusedAttention as graphs of cuDNN's frontend, whose headers are needed to build this file. cuDNN
// itself is opened at run time, so that a program starts where there is none.

#include "core/cuda/attention_library.cuh"

#include "core/cuda/check.cuh"

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <unordered_map>
#include <vector>

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // declared by the frontend, for its user to define
}

namespace shardmark::cuda {
namespace {

namespace fe = cudnn_frontend;
using Attributes = std::shared_ptr<fe::graph::Tensor_attributes>;

/// Why cuDNN cannot be opened; empty if it is open.
std::string why_not_opened() {
  if (fe::cudnn_dlhandle != nullptr) return {};
  // The frontend opens a CUDA runtime of its own; that of another version would not fit.
  setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", "libcudart.so.13", 0);
  for (const char* name : {"libcudnn.so.9", "libcudnn.so"}) {
    fe::cudnn_dlhandle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (fe::cudnn_dlhandle != nullptr) return {};
  }
  return message("cuDNN 9 cannot be loaded: ", dlerror());
}

enum Uid : std::int64_t { q = 1, k, v, o, stats, d_o, dq, dk, dv };

fe::DataType_t type_of(DType dtype) {
  if (dtype == DType::f32) return fe::DataType_t::FLOAT;
  return dtype == DType::f16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16;
}

void describe(fe::graph::Tensor_attributes& attributes, const GraphTensor& tensor, Uid uid) {
  attributes.set_uid(uid)
      .set_data_type(type_of(tensor.dtype))
      .set_dim({tensor.dims.begin(), tensor.dims.end()})
      .set_stride({tensor.strides.begin(), tensor.strides.end()});
}
Attributes input(fe::graph::Graph& graph, const GraphTensor& tensor, Uid uid) {
  fe::graph::Tensor_attributes attributes;
  describe(attributes, tensor, uid);
  return graph.tensor(attributes);
}
void output(const Attributes& attributes, const GraphTensor& tensor, Uid uid) {
  describe(*attributes, tensor, uid);
  attributes->set_output(true);
}

/// cuDNN wants a right bound where there is a left one; one at the last key masks nothing.
template <class Options>
void set_mask(Options& options, const FusedAttention& call) {
  if (!call.left_bound && !call.right_bound) return;
  options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT);
  options.set_diagonal_band_right_bound(
      static_cast<int>(call.right_bound.value_or(call.k.dims[2] - 1)));
  if (call.left_bound) options.set_diagonal_band_left_bound(static_cast<int>(*call.left_bound));
}

/// For the device that is current, or for compute capability `sm`.
std::shared_ptr<fe::graph::Graph> graph_of(const FusedAttention& call, int sm = 0) {
  auto graph = std::make_shared<fe::graph::Graph>();
  if (sm > 0) graph->set_sm_version(sm);
  graph->set_io_data_type(type_of(call.q.dtype))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const Attributes queries = input(*graph, call.q, q), keys = input(*graph, call.k, k),
                   values = input(*graph, call.v, v);
  if (call.backward) {
    auto options = fe::graph::SDPA_backward_attributes().set_name("attention_bwd");
    options.set_attn_scale(call.scale);
    set_mask(options, call);
    const auto gradients = graph->sdpa_backward(queries, keys, values, input(*graph, call.o, o),
                                                input(*graph, call.d_o, d_o),
                                                input(*graph, call.stats, stats), options);
    output(gradients[0], call.dq, dq);
    output(gradients[1], call.dk, dk);
    output(gradients[2], call.dv, dv);
    return graph;
  }
  auto options = fe::graph::SDPA_attributes().set_name("attention");
  options.set_attn_scale(call.scale).set_generate_stats(true);
  set_mask(options, call);
  const auto results = graph->sdpa(queries, keys, values, options);
  output(results[0], call.o, o);
  output(results[1], call.stats, stats);  // log-sum-exp, natural logarithm
  return graph;
}

/// All that a graph depends on: dtypes, sizes and strides of nine tensors, mask and scale.
using Key = std::array<std::int64_t, 9 * 9 + 4>;
Key key_of(const FusedAttention& call) {
  Key key{};
  auto* to = key.begin();
  *to++ = call.backward ? 1 : 0;
  *to++ = std::bit_cast<std::int32_t>(call.scale);
  *to++ = call.left_bound.value_or(-1);
  *to++ = call.right_bound.value_or(-1);
  for (const GraphTensor* t :
       {&call.q, &call.k, &call.v, &call.o, &call.stats, &call.d_o, &call.dq, &call.dk, &call.dv}) {
    *to++ = static_cast<std::int64_t>(t->dtype);
    to = std::ranges::copy(t->dims, to).out;
    to = std::ranges::copy(t->strides, to).out;
  }
  return key;
}

std::string text_of(cudnnStatus_t status) {
  return message("cuDNN: ", fe::detail::get_error_string(status));
}

}  // namespace

struct AttentionLibrary::Graphs {
  struct Built {
    std::shared_ptr<fe::graph::Graph> graph;
    AttentionSupport support;
  };
  /// Builds the graph the first time.
  Built& of(const FusedAttention& call) {
    const Key key = key_of(call);
    const auto found = built.find(key);
    if (found != built.end()) return found->second;
    Built& made = built[key];
    try {
      made.graph = graph_of(call);
      const fe::error_t error = made.graph->build(handle, {fe::HeurMode_t::A});
      if (error.is_bad())
        made.support.why_not = message("cuDNN: ", error.err_msg);
      else
        made.support.workspace_bytes = made.graph->get_workspace_size();
    } catch (const std::exception& error) {  // the frontend's own, of a symbol it does not find
      made.support.why_not = message("cuDNN: ", error.what());
    }
    return made;
  }

  cudnnHandle_t handle{nullptr};
  std::map<Key, Built> built;
};

AttentionLibrary::AttentionLibrary() {
  support_.why_not = why_not_opened();
  if (!support_.why_not.empty()) return;
  try {
    cudnnHandle_t handle = nullptr;
    const cudnnStatus_t status = fe::detail::create_handle(&handle);
    if (status != CUDNN_STATUS_SUCCESS) {
      support_.why_not = text_of(status);
      return;
    }
    graphs_ = std::make_unique<Graphs>();
    graphs_->handle = handle;
  } catch (const std::exception& error) {
    support_.why_not = message("cuDNN: ", error.what());
  }
}

AttentionLibrary::~AttentionLibrary() {
  if (graphs_ == nullptr) return;
  graphs_->built.clear();
  fe::detail::destroy_handle(graphs_->handle);
}

const AttentionSupport& AttentionLibrary::support(const FusedAttention& call) {
  return graphs_ == nullptr ? support_ : graphs_->of(call).support;
}

void AttentionLibrary::run(const FusedAttention& call, std::byte* workspace, cudaStream_t stream) {
  const AttentionSupport& here = support(call);
  SHARDMARK_CHECK(here.why_not.empty(), "fused attention: ", here.why_not);
  std::unordered_map<std::int64_t, void*> addresses{{q, call.q.data},
                                                    {k, call.k.data},
                                                    {v, call.v.data},
                                                    {o, call.o.data},
                                                    {stats, call.stats.data}};
  if (call.backward) {
    addresses.emplace(d_o, call.d_o.data);
    addresses.emplace(dq, call.dq.data);
    addresses.emplace(dk, call.dk.data);
    addresses.emplace(dv, call.dv.data);
  }
  const cudnnStatus_t status = fe::detail::set_stream(graphs_->handle, stream);
  SHARDMARK_CHECK(status == CUDNN_STATUS_SUCCESS, text_of(status));
  const fe::error_t error = graphs_->of(call).graph->execute(graphs_->handle, addresses, workspace);
  SHARDMARK_CHECK(error.is_good(), "cuDNN: ", error.err_msg);
}

std::string objection_to(const FusedAttention& call, int sm) {
  if (const std::string why = why_not_opened(); !why.empty()) return why;
  const fe::error_t error = graph_of(call, sm)->validate();
  return error.is_bad() ? error.err_msg : std::string{};
}

}  // namespace shardmark::cuda
