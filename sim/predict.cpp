#include "sim/predict.hpp"

#include "sim/cost_comm.hpp"
#include "sim/cost_compute.hpp"

#include <cmath>

namespace shardmark {

OpCost cost_on(const Machine& machine) {
  return [&machine](int, const OpRecord& record) {
    const bool communicates = kind_of(record.op) == OpKind::communication;
    return std::llround(1e3 * (communicates ? communication_us(machine, record.op)
                                            : compute_us(machine, record.op)));
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
