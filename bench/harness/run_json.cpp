#include "bench/harness/run_json.hpp"

#include <nlohmann/json.hpp>
#include <oneapi/dnnl/dnnl.hpp>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

#ifdef SHARDMARK_HAVE_MPI
#include <mpi.h>
#endif

#include "bench/harness/build_info.hpp"
#include "bench/harness/csv.hpp"
#include "bench/harness/summary.hpp"
#include "core/error.hpp"
#include "core/host.hpp"

extern char** environ;

namespace shardmark::bench {
namespace {

using Json = nlohmann::ordered_json;

std::string utc_time(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), format, &parts);
  return text.data();
}

std::string dnnl_version_text() {
  const dnnl_version_t* version = dnnl_version();
  return message(version->major, '.', version->minor, '.', version->patch);
}

std::string mpi_version_text() {
#ifdef SHARDMARK_HAVE_MPI
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string whole{text.data(), static_cast<std::size_t>(length)};
  std::string first_line = whole.substr(0, whole.find('\n'));
  std::ranges::replace(first_line, '\t', ' ');
  return first_line;
#else
  return "not built in";
#endif
}

/// Variables that change how compute and communication libraries behave.
Json relevant_environment() {
  constexpr std::array<const char*, 11> prefixes{"OMP_",    "GOMP_",  "KMP_",  "DNNL_",
                                                 "ONEDNN_", "MPICH_", "MPIR_", "GLIBC_TUNABLES",
                                                 "MALLOC_", "NCCL_",  "CUDA_"};
  Json variables = Json::object();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text{*entry};
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) continue;
    if (std::ranges::any_of(prefixes, [&](const char* prefix) { return text.starts_with(prefix); }))
      variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

Json machine() {
  return {{"host", host_name()},
          {"cpu", cpu_model()},
          {"cores", cores_available()},
          {"cores_online", static_cast<int>(std::thread::hardware_concurrency())},
          {"memory_bytes", memory_total_bytes()}};
}

Json measurement(const Options& options) {
  const RunnerOptions& runner = options.runner;
  Json algorithms = Json::object();
  for (const auto& [axis, algorithm] : runner.plans.algorithms)
    algorithms[std::string{name_of(axis)}] = algorithm;
  return {{"threads_per_rank", runner.threads_per_rank},
          {"warmup", runner.warmup},
          {"min_samples", runner.min_samples},
          {"max_time_s", runner.max_time_s},
          {"check", name_of(runner.check)},
          {"seed", runner.seed},
          {"peak_tflops", runner.peak_tflops},
          {"fill", runner.replicate ? "replicate" : "idle"},
          {"algorithms", algorithms},
          {"timeout_s", options.timeout_s}};
}

std::int64_t count(const std::vector<Result>& results, Status status) {
  return std::ranges::count(results, status, &Result::status);
}

}  // namespace

Json summary_json(std::span<const Result> results) {
  const SweepSummary summary = summarize(results);
  Json shapes = Json::array();
  for (const ShapeSummary& shape : summary.shapes)
    shapes.push_back({{"shape", shape.shape},
                      {"fastest_tp", shape.fastest_tp},
                      {"fastest_us", shape.fastest_us},
                      {"best_mfu_tp", shape.best_mfu_tp},
                      {"best_mfu_pct", shape.best_mfu_pct},
                      {"crossover", shape.crossover}});
  Json fits = Json::array();
  for (const auto& [dtype, fit] : summary.fits) {
    Json entry{{"dtype", name_of(dtype)}};
    if (fit.model) {
      entry["rows"] = fit.model->rows;
      entry["rate_tflops"] = fit.model->rate_tflops;
      if (fit.model->has_bandwidth) entry["bandwidth_GBps"] = fit.model->bandwidth_GBps;
      entry["alpha_us"] = fit.model->alpha_us;
      entry["median_error_pct"] = fit.model->median_error_pct;
      entry["worst_error_pct"] = fit.model->worst_error_pct;
    } else {
      entry["not_fitted"] = fit.reason;
    }
    fits.push_back(std::move(entry));
  }
  return {{"shapes", std::move(shapes)}, {"cost_models", std::move(fits)}};
}

std::string make_run_id() { return utc_time("%Y%m%dT%H%M%SZ-") + std::to_string(::getpid()); }

Json provenance(const std::vector<std::string>& command_line, const Options& options,
                const RunIdentity& run, const Transport& transport) {
  Json json = provenance_of(std::string{name_of(options.tool)}, schema_version, command_line,
                            measurement(options), run, transport);
  if (options.machine) json["predicted_for"] = Json::parse(to_json(*options.machine));
  return json;
}

std::string changed_settings(const Options& options) {
  return changed_settings(options.out, measurement(options));
}

std::string changed_settings(const std::string& folder, const Json& settings) {
  const std::string path = folder + "/run.json";
  if (!std::filesystem::exists(path)) return {};
  const Json before = Json::parse(read_file(path), nullptr, false);
  if (before.is_discarded() || !before.contains("measurement")) return {};
  std::string text;
  for (const auto& [name, now] : settings.items()) {
    const Json earlier = before["measurement"].value(name, Json{});
    if (earlier == now) continue;
    text += message(text.empty() ? "" : "; ", name, ' ', earlier.dump(), ", now ", now.dump());
  }
  return text;
}

Json provenance_of(const std::string& program, int version,
                   const std::vector<std::string>& command_line, Json how_measured,
                   const RunIdentity& run, const Transport& transport) {
  const BuildInfo& build = build_info();
  Json ranks = Json::array();
  for (const Endpoint& at : transport.endpoints())
    ranks.push_back({{"rank", at.rank}, {"host", at.host}, {"pid", at.pid}});
  Json json{
      {"program", program},
      {"schema_version", version},
      {"run_id", run.run_id},
      {"complete", false},
      {"command_line", command_line},
      {"start_time", utc_time("%Y-%m-%dT%H:%M:%SZ")},
      {"version", build.version},
      {"commit", build.git_commit},
      {"commit_dirty", build.git_dirty},
      {"build", {{"compiler", build.compiler}, {"flags", build.flags}, {"type", build.build_type}}},
      {"onednn", dnnl_version_text()},
      {"mpi", mpi_version_text()},
      {"machine", machine()},
      {"backend", run.backend},
      {"transport", run.transport},
      {"control_plane", transport.name()},
      {"device", run.device},
      {"world_size", transport.size()},
      {"oversubscribed", transport.wait_policy().yield},
      {"ranks", ranks},
      {"measurement", std::move(how_measured)},
      {"environment", relevant_environment()},
      {"memory_baseline_bytes", memory_resident_bytes()},
  };
  if (!run.devices.empty()) json["devices"] = Json::parse(run.devices);
  return json;
}

RunRecord::RunRecord(const std::string& folder, const Json& provenance, bool resume)
    : path_{folder + "/run.json"}, content_{std::make_unique<Json>(provenance)} {
  if (resume && std::filesystem::exists(path_)) {
    Json before = Json::parse(read_file(path_), nullptr, false);
    if (!before.is_discarded()) (*content_)["resumed_from"] = std::move(before);
  }
  write();
}

RunRecord::~RunRecord() = default;

void RunRecord::finish(const Json& rows, const Json& summary, bool complete) {
  (*content_)["end_time"] = utc_time("%Y-%m-%dT%H:%M:%SZ");
  (*content_)["memory_peak_bytes"] = memory_peak_resident_bytes();
  (*content_)["rows"] = rows;
  (*content_)["summary"] = summary;
  (*content_)["complete"] = complete;
  write();
}

void RunJson::add(const Outcome& row) { results_.push_back(row.result); }

void RunJson::finish(bool complete) {
  record_.finish({{"ok", count(results_, Status::ok)},
                  {"skipped", count(results_, Status::skipped)},
                  {"failed", count(results_, Status::failed)}},
                 summarize_(results_), complete);
}

void RunRecord::write() const { write_whole(path_, content_->dump(2) + '\n'); }

}  // namespace shardmark::bench
