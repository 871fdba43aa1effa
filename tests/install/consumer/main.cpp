// What somebody else's program looks like: a tensor-parallel MLP on two ranks of this process,
// compared with the same MLP on one rank.
#include "core/cpu/backend.hpp"
#include "core/launch.hpp"
#include "layers/program.hpp"

#include <cmath>
#include <cstdio>
#include <vector>

using namespace shardmark;

/// Output of one forward pass with tp = ranks, as rank 0 holds it.
std::vector<float> run_mlp(int ranks) {
  std::vector<float> y;
  run_threads(ranks, [&](Transport& transport) {
    Arena arena{std::int64_t{256} << 20};
    Kernels kernels{1, arena};
    CpuBackend backend{transport, arena, kernels};
    const Mesh mesh{{.tp = ranks}};
    Rank rank{transport.rank(), mesh, backend};
    LayerConfig config{.block = BlockKind::mlp};
    config.shape.hidden = 64;
    config.shape.ffn = 256;
    config.shape.seq = 32;
    config.parallel.tp = rank.group(Axis::tp);
    transport.connect(config.parallel.tp, Lane::tp);

    const auto program = make_program(rank, config);
    initialize(rank, *program, Values{Values::Kind::random, 1});
    program->forward();
    rank.synchronize();
    if (rank.id() != 0) return;
    for (const NamedTensor& named : program->tensors())
      if (named.name == "mlp/fc2/y") y = read_f32(backend, named.tensor);
  });
  return y;
}

int main() {
  const std::vector<float> parallel = run_mlp(2), serial = run_mlp(1);
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < serial.size(); ++i) {
    difference += std::pow(parallel.at(i) - serial[i], 2);
    norm += std::pow(serial[i], 2);
  }
  const double error = std::sqrt(difference / norm);
  std::printf("tp 2 against tp 1: relative difference %.1e\n", error);
  return error < 1e-5 ? 0 : 1;
}
