#include "layers/check.hpp"

#include "core/error.hpp"
#include "core/reference/backend.hpp"
#include "layers/pipeline/generate.hpp"
#include "layers/pipeline/lower.hpp"
#include "layers/recording.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

namespace shardmark {
namespace {

struct Difference {
  double max_abs{0}, squared{0}, reference_squared{0};
  std::int64_t num_wrong{0}, row{0}, col{0};
  float got{0}, expected{0};
};

/// Where each global tensor lies in a serial program's local tensors.
class SerialTensors {
 public:
  SerialTensors(Backend& backend, const NamedTensors& tensors) : backend_{backend} {
    for (const NamedTensor& named : tensors)
      for (const ShardPart& part : named.parts) places_[part.of] = {&named, &part};
  }

  /// Adds the differences of one part of a local tensor.
  void compare(const NamedTensor& named, const ShardPart& part, const std::vector<float>& values,
               Difference& difference) {
    const auto found = places_.find(part.of);
    SHARDMARK_CHECK(found != places_.end(), "the serial block has no tensor ", part.of);
    const auto& [serial, serial_part] = found->second;
    const std::vector<float>& reference = values_of(*serial);
    const bool columns = named.dim + 1 == named.tensor.shape.num_dims();
    const std::int64_t rows = columns ? named.tensor.rows() : part.count;
    const std::int64_t cols = columns ? part.count : named.tensor.cols();
    const std::int64_t shift =
        part.global_first - serial_part->global_first + serial_part->local_first;
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t row = columns ? i : part.local_first + i;
      const std::int64_t serial_row = columns ? named.global_row(i) : shift + i;
      for (std::int64_t j = 0; j < cols; ++j) {
        const std::int64_t col = columns ? part.local_first + j : j;
        const std::int64_t serial_col = columns ? shift + j : j;
        add(difference, row, col, values[static_cast<std::size_t>(row * named.tensor.cols() + col)],
            reference[static_cast<std::size_t>(serial_row * serial->tensor.cols() + serial_col)]);
      }
    }
  }

 private:
  static void add(Difference& d, std::int64_t row, std::int64_t col, float got, float expected) {
    const double error = static_cast<double>(got) - static_cast<double>(expected);
    d.squared += error * error;
    d.reference_squared += static_cast<double>(expected) * static_cast<double>(expected);
    d.max_abs = std::isnan(error) ? error : std::max(d.max_abs, std::abs(error));
    if (got == expected) return;
    if (d.num_wrong++ == 0) {
      d.row = row;
      d.col = col;
      d.got = got;
      d.expected = expected;
    }
  }

  const std::vector<float>& values_of(const NamedTensor& named) {
    auto [found, is_new] = values_.try_emplace(&named);
    if (is_new) found->second = read_f32(backend_, named.tensor);
    return found->second;
  }

  Backend& backend_;
  std::map<std::string, std::pair<const NamedTensor*, const ShardPart*>> places_;
  std::map<const NamedTensor*, std::vector<float>> values_;
};

double relative_error(const Difference& d) {
  if (d.squared == 0) return 0;
  if (d.reference_squared == 0) return d.max_abs;
  return std::sqrt(d.squared / d.reference_squared);
}

void run_once(Rank& rank, LayerProgram& program, const Values& values) {
  initialize(rank, program, values);
  run_phase(program, Phase::step);
  rank.synchronize();
}

/// Positions would rotate the exact data's logits; they are elementwise and not split, so the
/// random comparison covers them.
LayerConfig exact_config(LayerConfig config) {
  config.shape.positions = Positions::none;
  return config;
}

bool has_exact_data(BlockKind block) {
  return block != BlockKind::block && block != BlockKind::model &&
         block != BlockKind::attention_core;
}

/// On one rank; a pipeline as one stage that runs the micro-batches of all copies in turn and
/// recomputes nothing.
LayerConfig serial_config(LayerConfig config) {
  const int micro = config.num_micro();
  config.parallel = Parallel{};
  if (config.inference) config.pipeline.blocks = {config.shape.layers};
  if (!config.is_pipeline()) return config;
  config.recompute = Recompute::none;
  const pipeline::Schedule in_turn =
      pipeline::generate(pipeline::ScheduleKind::one_f_one_b, {.ranks = 1, .micro = micro});
  config.pipeline = {.schedule_name = in_turn.name,
                     .micro = micro,
                     .schedule = std::make_shared<const pipeline::Schedule>(
                         pipeline::lower(in_turn, pipeline::Lowering::split)),
                     .blocks = {config.shape.layers}};
  return config;
}

/// Whether every stage adds up the gradients of its micro-batches on one rank and in ascending
/// order: those of matrices in W (or B), those of norms in I (or B).
bool adds_up_in_order(const pipeline::Schedule& schedule) {
  if (schedule.is_two_way()) return false;
  using pipeline::Act;
  const auto ascends = [&](Act part) {
    std::vector<int> latest(static_cast<std::size_t>(schedule.num_stages), -1);
    bool in_order = true;
    for (const auto& steps : schedule.ranks)
      for (const pipeline::Step& step : steps)
        for_each_action(step, [&](const pipeline::Action& action) {
          if (action.act != Act::B && action.act != part) return;
          int& before = latest[static_cast<std::size_t>(action.stage)];
          in_order = in_order && before < action.micro;
          before = action.micro;
        });
    return in_order;
  };
  return ascends(Act::I) && ascends(Act::W);
}

/// Whether a pipeline does the same sums in the same order as one rank does.
bool equals_serial_bitwise(const LayerConfig& config) {
  return config.parallel.tp.size == 1 && config.parallel.dp.size == 1 &&
         adds_up_in_order(*config.pipeline.schedule);
}

/// A window, if any, keeps its share of the sequence; so do packed sequences, until nothing is left
/// of the shortest.
void shrink_sequence(ModelShape& shape, std::int64_t seq) {
  const auto scaled = [&](std::int64_t place) { return place * seq / shape.seq; };
  if (shape.window > 0) shape.window = std::max<std::int64_t>(1, scaled(shape.window));
  std::vector<std::int64_t> lengths;
  std::int64_t end = 0;
  for (const std::int64_t length : shape.seqlens) {
    const std::int64_t begin = scaled(end);
    end += length;
    if (scaled(end) > begin) lengths.push_back(scaled(end) - begin);
  }
  shape.seqlens = std::move(lengths);
  shape.seq = seq;
}

/// Two; in a pipeline one per stage, and two in those that have more than others.
void shrink_layers(LayerConfig& config) {
  std::vector<std::int64_t>& blocks = config.pipeline.blocks;
  if (blocks.size() <= 1) {
    config.shape.layers = std::min<std::int64_t>(config.shape.layers, 2);
    if (!blocks.empty()) blocks.front() = config.shape.layers;
    return;
  }
  const std::int64_t fewest = std::ranges::min(blocks);
  for (std::int64_t& count : blocks) count = count > fewest ? 2 : 1;
  config.shape.layers = std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0});
}

CheckResult run_and_compare(Rank& rank, const LayerConfig& config, Backend& serial_backend,
                            const Values& values, bool bitwise, double tolerance) {
  Rank serial_rank{0, Mesh{{}}, serial_backend};
  const auto serial = make_program(serial_rank, serial_config(config));
  run_once(serial_rank, *serial, values);
  const auto program = make_program(rank, config);
  run_once(rank, *program, values);
  return compare(rank.id(), rank.backend(), program->tensors(), serial_backend, serial->tensors(),
                 bitwise, tolerance);
}

}  // namespace

std::string_view name_of(CheckMode mode) {
  static constexpr std::array<std::string_view, 3> names{"off", "reduced", "full"};
  return names[static_cast<std::size_t>(mode)];
}

CheckMode usable_check_mode(CheckMode mode, int num_ranks) {
  return num_ranks == 1 && mode == CheckMode::full ? CheckMode::reduced : mode;
}

LayerConfig reduced_config(const LayerConfig& config) {
  LayerConfig small = config;
  ModelShape& shape = small.shape;
  const std::int64_t tp = config.parallel.tp.size;
  const std::int64_t ways = tp * config.parallel.context.ulysses_size();  // that heads are split
  const std::int64_t heads_per_rank = std::min<std::int64_t>(2, shape.heads / ways);
  const bool grouped = shape.kv_heads < shape.heads;
  shape.heads = ways * std::max<std::int64_t>(1, heads_per_rank);
  if (!grouped)
    shape.kv_heads = shape.heads;
  else if (shape.kv_heads % ways == 0)
    shape.kv_heads = ways;  // else kv_heads divides the ways and stays
  shape.head_dim = std::min<std::int64_t>(shape.head_dim, 32);
  shape.hidden = shape.heads * shape.head_dim;
  shape.ffn = 2 * shape.hidden;
  shape.vocab = 64 * tp;
  shrink_layers(small);
  shape.batch = std::min<std::int64_t>(shape.batch, 2);
  constexpr int few_tokens = 3;  // the first, one after it, and the last
  if (small.inference) small.inference->tokens = std::min(small.inference->tokens, few_tokens);
  constexpr std::int64_t tokens_alone = 512;
  const std::int64_t unit = std::lcm(token_unit(config.parallel), tp);
  const bool alone = config.parallel.num_ranks() == 1 && !config.is_pipeline() && !config.inference;
  shrink_sequence(shape,
                  std::min(shape.seq, alone ? tokens_alone : 8 * unit * config.parallel.chunks));
  small.parallel.chunks = usable_chunks(small.tokens(), config.parallel.tp.size,
                                        config.parallel.sequence_parallel, config.parallel.chunks);
  return small;
}

CheckResult compare(int rank, Backend& backend, const NamedTensors& local, Backend& serial_backend,
                    const NamedTensors& serial, bool bitwise, double tolerance) {
  CheckResult result;
  result.exact = bitwise;
  result.tolerance = tolerance;
  SerialTensors reference{serial_backend, serial};
  for (const NamedTensor& named : local) {
    const std::vector<float> values = read_f32(backend, named.tensor);
    Difference difference;
    for (const ShardPart& part : named.parts) reference.compare(named, part, values, difference);
    const double relative = relative_error(difference);
    const bool wrong = bitwise ? difference.num_wrong > 0 : !(relative <= tolerance);
    result.max_abs_err = std::max(result.max_abs_err, difference.max_abs);
    result.rel_norm_err = std::max(result.rel_norm_err, relative);
    if (!wrong || !result.pass) continue;
    result.pass = false;
    result.problem = message("rank ", rank, ": ", named.name, '[', difference.row, ',',
                             difference.col, "]: expected ", difference.expected, ", got ",
                             difference.got, "; ", difference.num_wrong, " of ",
                             named.tensor.numel(), " elements differ, relative error ", relative,
                             bitwise ? " (must be equal)" : message(" > ", tolerance));
  }
  return result;
}

CheckResult check_against_serial(Rank& rank, const LayerConfig& config, Backend& serial_backend,
                                 std::uint64_t seed, const CheckOptions& options) {
  const double of_dtype = config.dtype == DType::bf16  ? 2e-2
                          : config.dtype == DType::f16 ? 5e-3
                                                       : 1e-5;
  const double tolerance = std::max(of_dtype, options.arithmetic_error);
  const Values random_values{Values::Kind::random, seed};
  if (config.is_pipeline())
    return run_and_compare(rank, config, serial_backend, random_values,
                           options.same_kernels && equals_serial_bitwise(config), tolerance);
  if (config.inference && config.parallel.num_ranks() > 1)
    return run_and_compare(rank, config, serial_backend, random_values,
                           options.same_kernels && config.parallel.tp.size == 1, tolerance);
  ReferenceBackend reference;
  const bool against_f64 = config.parallel.tp.size == 1 || config.parallel.context.is_split();
  Backend& expected = against_f64 ? static_cast<Backend&>(reference) : serial_backend;
  CheckResult exact;
  if (has_exact_data(config.block))
    exact = run_and_compare(rank, exact_config(config), expected, Values{Values::Kind::exact, seed},
                            true, tolerance);
  CheckResult random = run_and_compare(rank, config, expected, random_values, false, tolerance);
  random.exact = exact.exact;
  random.pass = random.pass && exact.pass;
  if (!exact.pass) random.problem = exact.problem;
  return random;
}

}  // namespace shardmark
