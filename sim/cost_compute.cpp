#include "sim/cost_compute.hpp"

#include <algorithm>

namespace shardmark {

DType dtype_of(const Op& op) {
  const Touches touched = touches(op);
  for (const auto* list : {&touched.reads, &touched.writes})
    for (const Tensor& tensor : *list)
      if (tensor.dtype != DType::i32) return tensor.dtype;
  return DType::i32;
}

double compute_us(const Machine& machine, const Op& op) {
  const Work done = work(op);
  const DType dtype = dtype_of(op);
  const std::string_view name = name_of(op);
  double time_us = 0;
  if (done.flops > 0) {
    const Rates* rates = machine.find_rates(name, dtype, Rates::Of::flops);
    const double tflops = rates ? rates->at(done.flops) : machine.peak_tflops(dtype);
    time_us = done.flops / tflops / 1e6;
  }
  if (done.bytes_memory > 0) {
    const Rates* rates = machine.find_rates(name, dtype, Rates::Of::bytes);
    const double GBps = rates ? rates->at(done.bytes_memory) : machine.memory_GBps.value;
    time_us = std::max(time_us, done.bytes_memory / GBps / 1e3);
  }
  return machine.launch_overhead_us.value + time_us;
}

}  // namespace shardmark
