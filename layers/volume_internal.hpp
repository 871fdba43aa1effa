#pragma once

#include "layers/stage.hpp"
#include "layers/volume.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardmark {

/// Collects the lines of communication_volume(); knows t, S and which passes run. Where its parts
/// are: layers and the sum of weight gradients over cp in volume.cpp, what attention exchanges over
/// cp in volume_context.cpp, pipelines and inference in volume_pipeline.cpp.
class VolumeCounter {
 public:
  VolumeCounter(const LayerConfig& config, Phase phase)
      : config_{config}, forward_{phase != Phase::backward}, backward_{phase != Phase::forward} {}

  void column(const std::string& name);
  void row(const std::string& name);
  void gathered_output();
  void attention();
  /// What ContextKind exchanges.
  void attention_core();
  void mlp();
  void block(const std::string& prefix);
  /// The tensor-parallel part of a model or of a stage of it.
  void stage(const StageRange& range);
  void weight_gradients();
  /// Everything that this rank of a pipeline communicates.
  void pipeline();
  /// Everything that this rank communicates in inference. T is of a pass.
  void inference();

  [[nodiscard]] std::vector<VolumeLine> take() { return std::move(lines_); }

 private:
  struct Payload {
    double bytes;
    std::string formula;
  };
  [[nodiscard]] const ModelShape& shape() const { return config_.shape; }
  [[nodiscard]] const ContextParallel& context() const { return config_.parallel.context; }
  [[nodiscard]] bool sp() const { return config_.parallel.sequence_parallel; }
  [[nodiscard]] double element() const { return static_cast<double>(size_of(config_.dtype)); }
  [[nodiscard]] Payload tokens_hidden() const;
  /// What one stage passes to the next: under SP a rank's own tokens.
  [[nodiscard]] Payload boundary() const;

  /// What an iteration of a pipeline does once, not for every micro-batch.
  template <class Lines>
  void once(const Lines& lines) {
    const int times = std::exchange(times_, 1);
    lines();
    times_ = times;
  }

  void norm(const std::string& name);
  void shared_heads();
  void row_like_embedding();
  /// The forward pass that backward begins with where it recomputes blocks.
  void block_again(std::int64_t layer);

  void exchange_heads();
  /// K and V of all ranks around the ring, or gathered.
  void exchange_keys();
  /// Masks that let a ring send less than everything to everybody.
  [[nodiscard]] bool skips_parts() const;
  void exchange_keys_of_plan();

  /// Under SP row-parallel layers gather their output's gradient for I, and again for a W apart.
  void weights_apart(int s);
  /// Over the ranks that hold the same stage, in this copy of the model and in the others.
  void sum_gradients(int s);
  void sum_tied();

  void gather(const std::string& what, const Payload& payload);
  void reduce(const std::string& what, const Payload& payload);
  void add(const std::string& what, double bytes, const std::string& formula);

  const LayerConfig& config_;
  bool forward_, backward_;
  int times_{1};  ///< micro-batches or passes that do what is added
  std::string_view times_of_{"micro-batches"};
  std::vector<VolumeLine> lines_;
};

}  // namespace shardmark
