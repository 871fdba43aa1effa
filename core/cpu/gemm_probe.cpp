#include "core/cpu/gemm_probe.hpp"

#include "core/bf16.hpp"
#include "core/cpu/kernels_internal.hpp"
#include "core/cpu/matmul.hpp"

#include <chrono>
#include <random>

namespace shardmark {
namespace {

constexpr std::int64_t extent = 2048;

class NoTiles final : public TileHook {
 public:
  [[nodiscard]] bool wants_tiles() const override { return false; }
  void between_tiles() override {}
};

}  // namespace

class GemmProbe::Implementation {
 public:
  Implementation(DType dtype, int num_threads, Arena& arena)
      : num_threads_{num_threads},
        arena_{arena},
        scratch_{arena},
        product_{.a = matrix(dtype, 1), .b = matrix(dtype, 2), .c = matrix(dtype, 3)} {
    // Random data: zeros would run faster than any real product.
    std::minstd_rand random{1};
    std::uniform_real_distribution<float> uniform{-1.0F, 1.0F};
    for (const Tensor* tensor : {&product_.a, &product_.b})
      for (std::int64_t i = 0; i < extent * extent; ++i) {
        if (dtype == DType::f32)
          tensor->as<float>()[i] = uniform(random);
        else
          tensor->as<std::uint16_t>()[i] = to_bf16(uniform(random));
      }
    for (const Layout layout : {Layout::plain, Layout::packed}) (void)run_tflops(layout);
  }
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;
  ~Implementation() {
    for (const Tensor* tensor : {&product_.a, &product_.b, &product_.c})
      arena_.deallocate(tensor->data);
  }

  double run_tflops(Layout layout) {
    omp_set_num_threads(num_threads_);
    const bool packs = layout == Layout::packed;
    const kernels::Context context{num_threads_, hook_, scratch_, rotary_, packs};
    if (packs) {  // not timed: weights packed beforehand
      product_.reuse_b = false;
      (void)runner_.run(product_, context);
    }
    product_.reuse_b = packs;
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin = Clock::now();
    (void)runner_.run(product_, context);
    const double time_s = std::chrono::duration<double>(Clock::now() - begin).count();
    return 2.0 * extent * extent * extent / time_s / 1e12;
  }

 private:
  Tensor matrix(DType dtype, std::uint32_t id) {
    Tensor tensor{id, dtype, {extent, extent}, 0, extent, nullptr};
    tensor.data = arena_.allocate(tensor.bytes());
    return tensor;
  }

  int num_threads_;
  Arena& arena_;
  kernels::Scratch scratch_;
  kernels::RotaryTables rotary_;
  kernels::MatmulRunner runner_;
  NoTiles hook_;
  Matmul product_;
};

GemmProbe::GemmProbe(DType dtype, int num_threads, Arena& arena)
    : implementation_{std::make_unique<Implementation>(dtype, num_threads, arena)} {}
GemmProbe::~GemmProbe() = default;

double GemmProbe::run_tflops(Layout layout) { return implementation_->run_tflops(layout); }

}  // namespace shardmark
