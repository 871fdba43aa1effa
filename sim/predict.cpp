#include "sim/predict.hpp"

#include "core/error.hpp"
#include "sim/cost_comm.hpp"
#include "sim/cost_compute.hpp"

#include <cmath>

namespace shardmark {
namespace {

constexpr double longest_op_us = 1e11;  ///< a day; 92 thousand of these fit into nanoseconds

}  // namespace

OpCost cost_on(const Machine& machine) {
  return [&machine](int, const OpRecord& record) {
    const bool communicates = kind_of(record.op) == OpKind::communication;
    const double time_us =
        communicates ? communication_us(machine, record.op) : compute_us(machine, record.op);
    if (time_us > longest_op_us)
      throw InputError{message("machine ", machine.name, ": one ", name_of(record.op), " takes ",
                               time_us, " us, and at most ", longest_op_us,
                               " can be added up; check the machine's rates, or make it smaller")};
    return std::llround(1e3 * time_us);
  };
}

Prediction predict(std::span<const std::vector<OpRecord>> lists, const Machine& machine) {
  return predict(lists, machine, unfolded(static_cast<int>(lists.size())));
}

Prediction predict(std::span<const std::vector<OpRecord>> lists, const Machine& machine,
                   Folding folding) {
  Prediction prediction{std::move(folding), {}};
  prediction.replay = replay(lists, prediction.folding, cost_on(machine),
                             machine.overlap.value > 0 ? own_lanes() : lanes_of_one_core());
  return prediction;
}

}  // namespace shardmark
