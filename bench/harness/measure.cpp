#include "bench/harness/measure.hpp"

#include "bench/harness/pipeline_meter.hpp"
#include "bench/harness/probes.hpp"
#include "bench/harness/session.hpp"
#include "bench/harness/statistics.hpp"
#include "bench/harness/together.hpp"
#include "bench/harness/trace.hpp"
#include "bench/harness/work.hpp"
#include "core/cpu/transport_threads.hpp"
#include "core/host.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace shardmark::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Ranks of one replica follow each other; every rank of the world is in one or idle.
int num_active(const Case& config, int world_size, bool replicate) {
  const int ranks = config.layer.parallel.num_ranks();
  return replicate ? world_size / ranks * ranks : ranks;
}

}  // namespace

LayerConfig config_of_rank(const Case& config, int rank, int world_size, bool replicate) {
  LayerConfig layer = config.layer;
  const int ranks = layer.parallel.num_ranks();
  if (rank >= num_active(config, world_size, replicate))
    layer.parallel.tp = Group{Axis::tp, rank, 1, 0, 0};
  else
    layer.parallel = layer.parallel.at(rank / ranks * ranks, rank % ranks);
  return layer;
}

/// The measurement of one case on one rank; `session` is null on a rank that idles.
class Runner::Measurement {
 public:
  Measurement(Runner& runner, const Case& config)
      : options_{runner.options_},
        transport_{runner.transport_},
        engine_{runner.engine_},
        config_{config},
        layer_{config_of_rank(config, transport_.rank(), transport_.size(), options_.replicate)},
        active_{layer_.parallel.tp.size > 0},
        num_active_{num_active(config, transport_.size(), options_.replicate)},
        waiting_{active_ ? Transport::Waiting::active : Transport::Waiting::idle} {
    outcome_.result.config = config;
    outcome_.result.world_size = transport_.size();
    outcome_.result.replicated = options_.replicate;
    outcome_.result.threads_per_rank = options_.threads_per_rank;
    outcome_.result.check_mode =
        usable_check_mode(options_.check, config.layer.parallel.num_ranks());
    outcome_.result.oversubscribed = is_oversubscribed();
  }

  Outcome measure() {
    prepare();
    check();
    probe();
    build();
    warm_up();
    sample();
    baselines();
    profile();
    finish();
    return std::move(outcome_);
  }

  void visit(const std::function<void(Rank&, const LayerProgram&)>& visit) {
    prepare();
    build();
    if (!active_) return;
    session_->iterate(1);
    visit(session_->rank(), session_->program());
  }

 private:
  [[nodiscard]] Result& result() { return outcome_.result; }
  /// True if the case's ranks on some host outnumber its cores; idle ranks sleep and do not count.
  [[nodiscard]] bool is_oversubscribed() {
    const auto& endpoints = transport_.endpoints();
    const std::string& here = endpoints[static_cast<std::size_t>(transport_.rank())].host;
    const auto neighbours =
        std::count_if(endpoints.begin(), endpoints.begin() + num_active_,
                      [&](const Endpoint& endpoint) { return endpoint.host == here; });
    const bool mine = neighbours * options_.threads_per_rank > cores_available();
    return maximum(mine ? 1 : 0) > 0;
  }
  [[nodiscard]] Mesh mesh() const {
    const Parallel& parallel = config_.layer.parallel;
    return Mesh{{.dp = num_active_ / parallel.num_model_ranks(),
                 .pp = parallel.pp.size,
                 .cp = parallel.context.cp.size,
                 .tp = parallel.tp.size}};
  }

  /// Connects what the case communicates and makes its memory resident.
  void prepare() {
    if (!active_) return;
    const Recording recording = record_program(layer_, config_.phase, options_.threads_per_rank);
    engine_.connect_all(record_program(layer_, Phase::step, options_.threads_per_rank).ops);
    if (const Group group = latency_group(layer_.parallel); group.size > 1)
      engine_.connect(group, probe_lane);
    work_ = work_of(recording, layer_);
    result().mem_predicted_bytes = recording.tensor_bytes + recording.workspace_bytes;
    engine_.prefault(result().mem_predicted_bytes);
  }

  void check() {
    CheckResult mine;
    const CheckMode mode = result().check_mode;
    if (active_ && mode != CheckMode::off) {
      ThreadWorld world{1};
      ThreadTransport alone{world, 0};
      const auto serial = engine_.make_serial_backend(alone);
      const auto parallel = engine_.make_backend(transport_);
      PlannedBackend planned{*parallel, options_.plans, host_numbers(transport_.endpoints())};
      Rank rank{transport_.rank(), mesh(), planned};
      const LayerConfig layer = mode == CheckMode::reduced ? reduced_config(layer_) : layer_;
      mine = check_against_serial(rank, layer, *serial, options_.seed,
                                  {.same_kernels = engine_.checks_itself(),
                                   .arithmetic_error = engine_.arithmetic_error()});
    }
    merge_checks(mine);
  }

  /// Before the block is built, so that the probe's buffers do not add to its memory.
  void probe() {
    if (!active_) return;
    const auto backend = engine_.make_backend(transport_);
    Rank rank{transport_.rank(), mesh(), *backend};
    machine_ = probe_machine(rank, latency_group(layer_.parallel));
  }

  void merge_checks(CheckResult mine) {
    struct Numbers {
      double max_abs_err, rel_norm_err, tolerance;
      bool pass, exact;
    };
    const auto all = exchange_all(
        transport_,
        Numbers{mine.max_abs_err, mine.rel_norm_err, mine.tolerance, mine.pass, mine.exact},
        waiting_);
    const std::vector<std::string> problems = transport_.gather(mine.problem, waiting_);
    CheckResult merged = mine;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      merged.pass = merged.pass && all[rank].pass;
      merged.max_abs_err = std::max(merged.max_abs_err, all[rank].max_abs_err);
      merged.rel_norm_err = std::max(merged.rel_norm_err, all[rank].rel_norm_err);
      if (merged.problem.empty()) merged.problem = problems[rank];
    }
    result().check = merged;
    if (merged.pass) return;
    result().status = Status::failed;
    result().reason = "check failed: " + merged.problem;
  }

  void build() {
    if (!active_) return;
    if (options_.check_nan) {
      make_session(true);
      session_->iterate(1);
    }
    make_session(false);
  }

  void make_session(bool check_nan) {
    session_.reset();
    engine_.reset_peak();
    session_ = std::make_unique<Session>(config_, layer_, mesh(), options_, check_nan, transport_,
                                         engine_);
  }

  /// One sample: barrier, `count` iterations, and the slowest active rank's time of one of them.
  double take_sample(int count) {
    struct Report {
      double time_us;
      bool interrupted;
    };
    transport_.barrier(waiting_);
    double mine_us = 0;
    if (active_) mine_us = static_cast<double>(session_->iterate(count)) / 1e3 / count;
    const bool interrupted = options_.interrupted && options_.interrupted();
    double slowest_us = 0;
    bool any_interrupted = false;
    for (const Report& report : exchange_all(transport_, Report{mine_us, interrupted}, waiting_)) {
      slowest_us = std::max(slowest_us, report.time_us);
      any_interrupted = any_interrupted || report.interrupted;
    }
    if (any_interrupted) throw Interrupted{};
    return slowest_us;
  }

  /// The largest of all ranks' values; ranks outside of the case contribute 0.
  double maximum(double value) {
    return std::ranges::max(exchange_all(transport_, value, waiting_));
  }

  /// Rank 0's clock, so that all ranks decide alike.
  double elapsed_s(Clock::time_point begin) {
    return exchange_all(transport_, seconds_since(begin), waiting_).front();
  }

  void warm_up() {
    constexpr double settled = 0.05;
    constexpr double shortest_sample_us = 100;
    const Clock::time_point begin = Clock::now();
    const int most = std::max(1, 10 * options_.warmup);  // one in any case: it sizes the samples
    const auto predicted_bytes = static_cast<double>(result().mem_predicted_bytes);
    result().mem_predicted_bytes = static_cast<std::int64_t>(maximum(predicted_bytes));
    double latest_us = count_work();
    int count = 1;
    while (count < most && elapsed_s(begin) < options_.max_time_s) {
      const double previous_us = std::exchange(latest_us, take_sample(1));
      ++count;
      if (count < options_.warmup) continue;
      if (std::abs(latest_us - previous_us) <= settled * latest_us) break;
      if (elapsed_s(begin) > options_.max_time_s / 2) break;
    }
    result().warmup = count;
    result().inner_iterations = static_cast<int>(
        std::clamp(std::ceil(shortest_sample_us / std::max(latest_us, 0.1)), 1.0, 1000.0));
    const double peak_bytes = active_ ? static_cast<double>(engine_.peak_bytes()) : 0;
    result().mem_peak_bytes = static_cast<std::int64_t>(maximum(peak_bytes));
  }

  void sample() {
    const StopRule rule{options_.min_samples, options_.max_time_s};
    PeakMeter peak{active_ ? &engine_ : nullptr, config_.layer.dtype, options_.peak_tflops,
                   transport_, num_active_};
    peak.probe_alone();
    peak.probe();
    std::vector<double> samples_us;
    const Clock::time_point begin = Clock::now();
    double next_probe_s = rule.max_time_s / 2;
    while (true) {
      samples_us.push_back(take_sample(result().inner_iterations));
      note_throttling();
      const double elapsed = elapsed_s(begin);
      if (should_stop(rule, samples_us, elapsed)) break;
      if (elapsed < next_probe_s) continue;
      peak.probe();
      next_probe_s += rule.max_time_s / 2;
    }
    peak.probe();
    result().time = summarize(samples_us);
    result().peak = peak.result();
  }

  /// Rows of a GPU that is held back are marked.
  void note_throttling() {
    if (transport_.rank() == 0 && result().throttled_by.empty())
      result().throttled_by = engine_.throttled_by();
  }

  /// One iteration, and what it moves and computes as the backend and the transport count it.
  double count_work() {
    const double bytes = active_ ? session_->bytes_started() : 0;
    const double flops = active_ ? session_->flops_executed() : 0;
    const double planned = active_ ? session_->bytes_planned() : 0;
    const double time_us = take_sample(1);
    if (!active_) return time_us;
    bytes_.counted = session_->bytes_started() - bytes;
    bytes_.expected = options_.plans.algorithms.empty()
                          ? total_bytes(communication_volume(layer_, config_.phase))
                          : session_->bytes_planned() - planned;
    work_.flops_done = session_->flops_executed() - flops;
    return time_us;
  }

  /// Iterations of a baseline and of the profiled pass: 3 to 9 in half the time of a row; one where
  /// a single one takes longer than a row should.
  [[nodiscard]] int num_side_samples() const {
    const double row_us = options_.max_time_s * 1e6;
    const double iteration_us = std::max(result_time_us(), 1.0);
    if (iteration_us > row_us) return 1;
    return static_cast<int>(std::clamp(row_us / 2 / iteration_us, 3.0, 9.0));
  }
  /// A bubble is a median over at least 15, unless those take over three times as long as a row.
  [[nodiscard]] int num_profiled() const {
    if (!config_.layer.is_pipeline()) return num_side_samples();
    const double fit = 3 * options_.max_time_s * 1e6 / std::max(result_time_us(), 1.0);
    return static_cast<int>(std::clamp(fit, 1.0, 15.0));
  }
  [[nodiscard]] double result_time_us() const { return outcome_.result.time.p50; }

  void baselines() {
    if (config_.layer.parallel.num_ranks() == 1) return;
    const auto run = [&](OpKind keep, double& alone_us) {
      if (active_) session_->set_keep(keep);
      std::vector<double> times_us, kernels_us;
      for (int i = 0; i < num_side_samples(); ++i) {
        const auto [iteration, split] = profile_once();
        times_us.push_back(maximum(split.window_us - closing_wait_us(iteration)));
        kernels_us.push_back(keep == OpKind::compute ? split.comp_us : split.comm_us);
      }
      if (active_) session_->set_keep(std::nullopt);
      alone_us = maximum(active_ ? median(kernels_us) : 0);
      return median(times_us);
    };
    result().compute_only_us = run(OpKind::compute, result().comp_alone_us);
    result().communication_only_us = run(OpKind::communication, result().comm_alone_us);
  }

  std::pair<ProfiledIteration, TimeSplit> profile_once() {
    if (!active_) {
      transport_.barrier(waiting_);
      transport_.barrier(waiting_);
      return {};
    }
    ProfiledIteration iteration = session_->profile(transport_);
    const TimeSplit split = split_window(iteration);
    return {std::move(iteration), split};
  }

  /// Profiled iterations alternate with plain ones, so that their ratio is free of drift. The
  /// iteration with the median window stands for all.
  void profile() {
    std::vector<ProfiledIteration> iterations;
    std::vector<TimeSplit> splits;
    std::vector<double> plain_us, profiled_us, windows_us, comp_us, comm_us;
    std::optional<PipelineMeter> pipeline;
    if (config_.layer.is_pipeline()) pipeline.emplace(config_, options_, num_active_, transport_);
    for (int i = 0; i < num_profiled(); ++i) {
      plain_us.push_back(take_sample(1));
      auto [iteration, split] = profile_once();
      windows_us.push_back(maximum(split.window_us));
      profiled_us.push_back(maximum(split.window_us - closing_wait_us(iteration)));
      comp_us.push_back(split.comp_us);
      comm_us.push_back(split.comm_us);
      if (pipeline) pipeline->add(iteration);
      iterations.push_back(std::move(iteration));
      splits.push_back(split);
    }
    result().comp_together_us = maximum(median(comp_us));
    result().comm_together_us = maximum(median(comm_us));
    result().profiled_us = median(profiled_us);
    result().interleaved_us = median(plain_us);
    std::vector<std::size_t> order(windows_us.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::sort(order, {}, [&](std::size_t i) { return windows_us[i]; });
    const std::size_t middle = order[order.size() / 2];
    gather_profile(iterations[middle], splits[middle]);
    if (pipeline) result().pipeline = pipeline->result();
  }

  /// The window ends with a barrier; an iteration's own time ends before it.
  [[nodiscard]] static double closing_wait_us(const ProfiledIteration& iteration) {
    return static_cast<double>(iteration.closing_ns) / 1e3;
  }

  void gather_profile(const ProfiledIteration& iteration, const TimeSplit& split) {
    std::vector<TimeSplit> all = exchange_all(transport_, split, waiting_);
    all.resize(static_cast<std::size_t>(num_active_));
    const auto worst = std::ranges::max_element(all, {}, &TimeSplit::exposed_comm_us);
    const auto worst_rank = static_cast<std::size_t>(worst - all.begin());
    result().split = *worst;
    result().splits = std::move(all);
    result().work = exchange_all(transport_, work_, waiting_);
    result().work.resize(static_cast<std::size_t>(num_active_));
    result().flops_observed = mean_flops_done(result().work);
    const std::string packed = active_ ? pack(make_trace(transport_.rank(), iteration)) : "";
    for (const std::string& bytes : transport_.gather(packed, waiting_))
      if (!bytes.empty() && transport_.rank() == 0) outcome_.traces.push_back(unpack(bytes));
    result().kernels = summarize_kernels(outcome_.traces);
    if (transport_.rank() != 0) return;
    const Waiting waiting = waiting_of(outcome_.traces, worst_rank);
    result().exchange_us = time_on(outcome_.traces[worst_rank], Lane::cp);
    result().transfer_us = waiting.transfer_us;
    result().wait_us = waiting.wait_us;
    if (config_.layer.inference)
      result().inference = inference_times(config_.layer, outcome_.traces);
  }

  void finish() {
    const ModelFlops flops = model_flops(config_.layer, config_.phase);
    result().flops_model_causal = flops.causal;
    result().flops_model_full = flops.full;
    const std::vector<Bytes> bytes = exchange_all(transport_, bytes_, waiting_);
    const auto busiest = std::ranges::max_element(bytes, {}, &Bytes::counted);
    LayerConfig layer = config_.layer;
    layer.parallel = layer.parallel.at(
        0, static_cast<int>(busiest - bytes.begin()) % layer.parallel.num_ranks());
    result().bytes_observed = busiest->counted;
    result().volume = communication_volume(layer, config_.phase);
    result().bytes_analytic = total_bytes(result().volume);
    const Verdict verdict = judge(result(), options_.thresholds, machine_);
    result().verdict = verdict.name;
    result().verdict_reason = verdict.reason;
    judge_accounts(bytes);
    if (session_ && transport_.rank() == 0) engine_.say(session_->notices());
    session_.reset();
  }

  /// Bytes across a rank's link in one iteration: as counted, and by the formula or by the plans of
  /// other algorithms.
  struct Bytes {
    double counted{0}, expected{0};
  };

  /// Numbers that must agree on every rank: the parts of the window with the whole, and the bytes
  /// counted with those expected. A row in which they do not is worth nothing.
  void judge_accounts(const std::vector<Bytes>& bytes) {
    constexpr double residual_limit = 0.001;
    const auto fail = [&](const std::string& reason) {
      if (result().status != Status::ok) return;
      result().status = Status::failed;
      result().reason = reason;
    };
    for (std::size_t rank = 0; rank < result().splits.size(); ++rank) {
      const TimeSplit& split = result().splits[rank];
      if (std::abs(split.residual_us) > residual_limit * split.window_us)
        fail(message("rank ", rank, ": the parts of the window leave ", split.residual_us, " of ",
                     split.window_us, " us unexplained (limit 0.1 %)"));
    }
    judge_pipeline(fail);
    const bool plans = !options_.plans.algorithms.empty();
    for (std::size_t rank = 0; rank < bytes.size(); ++rank)
      if (const auto [counted, expected] = bytes[rank]; std::abs(counted - expected) > 0.5)
        fail(message("rank ", rank, " communicated ", counted, " bytes, ",
                     plans ? "its plans say " : "the formula says ", expected));
  }

  template <class Fail>
  void judge_pipeline(const Fail& fail) {
    if (!result().pipeline) return;
    const PipelineTimes& times = *result().pipeline;
    const std::string held = in_flight_problem(in_flight(times, config_.layer));
    for (const std::string& problem : {times.problem, held})
      if (!problem.empty()) fail(problem);
  }

  const RunnerOptions& options_;
  Transport& transport_;
  Engine& engine_;
  Case config_;
  LayerConfig layer_;
  bool active_;
  int num_active_;
  Transport::Waiting waiting_;
  std::unique_ptr<Session> session_;
  VerdictInputs machine_;
  RankWork work_;  ///< of this rank
  Bytes bytes_;    ///< of this rank
  Outcome outcome_;
};

Outcome Runner::run(const Case& config) {
  SHARDMARK_CHECK(config.skip_reason.empty(), "a skipped case is not run");
  return Measurement{*this, config}.measure();
}

void Runner::visit_program(const Case& config,
                           const std::function<void(Rank&, const LayerProgram&)>& visit) {
  Measurement{*this, config}.visit(visit);
}

}  // namespace shardmark::bench
