#include "core/cuda/matmul_library.cuh"

#include "core/cuda/check.cuh"

namespace shardmark::cuda {
namespace {

cudaDataType_t type_of(DType dtype) {
  if (dtype == DType::f32) return CUDA_R_32F;
  if (dtype == DType::f16) return CUDA_R_16F;
  SHARDMARK_CHECK(dtype == DType::bf16, "a matmul of ", name_of(dtype));
  return CUDA_R_16BF;
}

cublasLtMatrixLayout_t layout_of(const ColumnMajor& m, std::int64_t num_batches) {
  cublasLtMatrixLayout_t layout = nullptr;
  SHARDMARK_CUBLAS(
      cublasLtMatrixLayoutCreate(&layout, type_of(m.dtype), static_cast<std::uint64_t>(m.rows),
                                 static_cast<std::uint64_t>(m.cols), m.leading_dimension));
  if (num_batches == 1) return layout;
  const auto count = static_cast<std::int32_t>(num_batches);
  SHARDMARK_CUBLAS(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                    &count, sizeof count));
  SHARDMARK_CUBLAS(cublasLtMatrixLayoutSetAttribute(
      layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m.batch_stride, sizeof m.batch_stride));
  return layout;
}

template <class T>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute,
         const T& value) {
  SHARDMARK_CUBLAS(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value));
}

/// What the heuristic may choose from.
class Preference {
 public:
  Preference() { SHARDMARK_CUBLAS(cublasLtMatmulPreferenceCreate(&preference_)); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  ~Preference() { cublasLtMatmulPreferenceDestroy(preference_); }
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    SHARDMARK_CUBLAS(
        cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof value));
  }
  [[nodiscard]] cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  cublasLtMatmulPreference_t preference_{nullptr};
};

}  // namespace

MatmulLibrary::MatmulLibrary(int major) : workspace_bytes_{advised_workspace_bytes(major)} {
  SHARDMARK_CUBLAS(cublasLtCreate(&handle_));
}

MatmulLibrary::~MatmulLibrary() {
  for (const auto& [key, plan] : plans_) {
    cublasLtMatrixLayoutDestroy(plan.a);
    cublasLtMatrixLayoutDestroy(plan.b);
    cublasLtMatrixLayoutDestroy(plan.d);
    cublasLtMatmulDescDestroy(plan.description);
  }
  cublasLtDestroy(handle_);
}

MatmulLibrary::Key MatmulLibrary::key_of(const MatmulCall& call) {
  return {call.a.dtype,
          call.d.dtype,
          call.d.rows,
          call.d.cols,
          call.transpose_a ? call.a.rows : call.a.cols,
          call.a.leading_dimension,
          call.b.leading_dimension,
          call.d.leading_dimension,
          call.transpose_a,
          call.transpose_b,
          call.fast_tf32,
          call.beta != 0,
          call.bias != nullptr,
          call.alignment_bytes,
          call.num_batches,
          call.a.batch_stride,
          call.b.batch_stride,
          call.d.batch_stride};
}

MatmulLibrary::Plan MatmulLibrary::plan_of(const MatmulCall& call) const {
  Plan plan;
  const cublasComputeType_t compute =
      call.fast_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  SHARDMARK_CUBLAS(cublasLtMatmulDescCreate(&plan.description, compute, CUDA_R_32F));
  set(plan.description, CUBLASLT_MATMUL_DESC_TRANSA, call.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(plan.description, CUBLASLT_MATMUL_DESC_TRANSB, call.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (call.bias != nullptr) {
    set(plan.description, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(plan.description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(call.d.dtype));
    // The heuristic looks at its alignment.
    set(plan.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(call.bias));
  }
  plan.a = layout_of(call.a, call.num_batches);
  plan.b = layout_of(call.b, call.num_batches);
  plan.d = layout_of(call.d, call.num_batches);
  Preference preference;
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                 static_cast<std::uint64_t>(workspace_bytes_));
  const auto alignment = static_cast<std::uint32_t>(call.alignment_bytes);
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    preference.set(attribute, alignment);
  cublasLtMatmulHeuristicResult_t best{};
  int num_found = 0;
  SHARDMARK_CUBLAS(cublasLtMatmulAlgoGetHeuristic(handle_, plan.description, plan.a, plan.b, plan.d,
                                                  plan.d, preference.get(), 1, &best, &num_found));
  SHARDMARK_CHECK(num_found > 0, "cuBLASLt has no algorithm for a matmul of ", call.d.cols, 'x',
                  call.transpose_a ? call.a.rows : call.a.cols, 'x', call.d.rows, ", aligned to ",
                  call.alignment_bytes, " bytes");
  plan.algorithm = best.algo;
  return plan;
}

void MatmulLibrary::run(const MatmulCall& call, std::byte* workspace, cudaStream_t stream) {
  const Key key = key_of(call);
  auto found = plans_.find(key);
  if (found == plans_.end()) found = plans_.emplace(key, plan_of(call)).first;
  const Plan& plan = found->second;
  if (call.bias != nullptr)
    set(plan.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(call.bias));
  const float alpha = 1;
  SHARDMARK_CUBLAS(cublasLtMatmul(handle_, plan.description, &alpha, call.a.data, plan.a,
                                  call.b.data, plan.b, &call.beta, call.d.data, plan.d, call.d.data,
                                  plan.d, &plan.algorithm, workspace,
                                  static_cast<std::size_t>(workspace_bytes_), stream));
}

}  // namespace shardmark::cuda
