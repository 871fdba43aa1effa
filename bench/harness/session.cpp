#include "bench/harness/session.hpp"

#include "profiler/range.hpp"

#include <chrono>

namespace shardmark::bench {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::unique_ptr<Backend> make_fault(const std::string& spec, Backend& inner, int rank) {
  if (spec.empty()) return nullptr;
  return std::make_unique<FaultBackend>(inner, rank, parse_fault(spec));
}

Backend& outermost(Backend& inner, const std::unique_ptr<Backend>& adaptor) {
  return adaptor ? *adaptor : inner;
}

}  // namespace

Session::Session(const Case& config, const LayerConfig& layer, const Mesh& mesh,
                 const RunnerOptions& options, bool check_nan, Transport& transport, Engine& engine)
    : phase_{config.phase},
      engine_{engine},
      backend_{engine.make_backend(transport)},
      fault_{make_fault(options.fault, *backend_, transport.rank())},
      nan_check_{check_nan ? std::make_unique<NanCheckBackend>(outermost(*backend_, fault_),
                                                               transport.rank())
                           : nullptr},
      planned_{outermost(outermost(*backend_, fault_), nan_check_), options.plans,
               host_numbers(transport.endpoints())},
      filter_{planned_, std::nullopt},
      rank_{std::make_unique<Rank>(transport.rank(), mesh, filter_)},
      program_{make_program(*rank_, layer)},
      nvtx_{make_nvtx_ranges()},
      fanout_{{&collector_, nvtx_.get()}} {
  initialize(*rank_, *program_, Values{Values::Kind::random, options.seed});
  backend_->set_kernel_sink(nvtx_.get());
  if (phase_ == Phase::backward) {
    program_->forward();
    rank_->synchronize();
  }
}

std::int64_t Session::iterate(int count) {
  const std::int64_t begin = now_ns();
  for (int i = 0; i < count; ++i) {
    const auto scope = rank_->scope(name_of(phase_));
    run_phase(*program_, phase_);
    rank_->synchronize();
  }
  return now_ns() - begin;
}

ProfiledIteration Session::profile(Transport& transport) {
  collector_.clear();
  ops_.ops.clear();
  rank_->set_sink(&ops_);
  backend_->set_kernel_sink(&fanout_);
  engine_.begin_profile();
  transport.barrier();
  const NvtxWindow window{"profiled"};
  ProfiledIteration result;
  result.begin_ns = now_ns();
  iterate(1);
  const ExecutorTimes times = backend_->times();
  transport.barrier();
  result.end_ns = now_ns();
  engine_.end_profile();
  backend_->set_kernel_sink(nvtx_.get());
  rank_->set_sink(nullptr);
  result.closing_ns = result.end_ns - times.end_ns;
  result.idle_ns = times.idle_ns + (times.begin_ns - result.begin_ns) + result.closing_ns;
  result.ops = ops_.ops;
  result.records = collector_.records();
  return result;
}

}  // namespace shardmark::bench
