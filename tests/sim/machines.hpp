#pragma once

#include "sim/hardware.hpp"

namespace shardmark::test {

/// A machine of round numbers: 100 TFLOP/s, 1000 GB/s of memory, 1 us per op; nodes of
/// `ranks_per_node` with links of 2 us + 100 GB/s inside and 10 us + 10 GB/s between.
inline Machine round_machine(int ranks_per_node) {
  const std::string source = "made up";
  Machine machine;
  machine.name = "round";
  machine.about = "round numbers";
  machine.peaks_tflops["f32"] = {100, source};
  machine.memory_GBps = {1000, source};
  machine.launch_overhead_us = {1, source};
  machine.ranks_per_node = {static_cast<double>(ranks_per_node), source};
  machine.inside.link = {{2, source}, {100, source}};
  machine.between.link = {{10, source}, {10, source}};
  machine.has_between = true;
  machine.collective_overhead_us = {0, source};
  machine.algorithms = {CommAlgorithm::ring};
  machine.overlap = {1, source};
  return machine;
}

}  // namespace shardmark::test
