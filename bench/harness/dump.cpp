#include "bench/harness/dump.hpp"

#include "bench/harness/build_info.hpp"
#include "bench/harness/npy.hpp"
#include "bench/harness/together.hpp"
#include "core/error.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace shardmark::bench {
namespace {

using Json = nlohmann::ordered_json;

Json extents(const Shape& shape) {
  Json list = Json::array();
  for (std::size_t dim = 0; dim < shape.num_dims(); ++dim) list.push_back(shape[dim]);
  return list;
}

std::string file_name(const NamedTensor& named, int rank) {
  std::string name = message("rank", rank, '.', named.name, ".npy");
  std::ranges::replace(name, '/', '.');
  return name;
}

Json describe(const NamedTensor& named, int rank, const Values& values) {
  Json parts = Json::array();
  for (const ShardPart& part : named.parts)
    parts.push_back({{"of", part.of},
                     {"global_shape", extents(part.global_shape)},
                     {"local_first", part.local_first},
                     {"global_first", part.global_first},
                     {"count", part.count}});
  Json rows = Json::array();
  for (const Places::Run& run : named.rows) rows.push_back({run.first, run.count, run.stride});
  const bool generated = named.role == Role::input || named.role == Role::weight;
  std::string formula = named.formula;
  if (generated && !named.parts.empty()) formula = values.formula(named.parts.front().init);
  return {{"name", named.name},
          {"role", name_of(named.role)},
          {"rank", rank},
          {"file", file_name(named, rank)},
          {"dtype", name_of(named.tensor.dtype)},
          {"shape", extents(named.tensor.shape)},
          {"dim", named.dim},
          {"parts", std::move(parts)},
          {"rows", std::move(rows)},
          {"formula", formula}};
}

Json describe(const Case& config, std::uint64_t seed) {
  const LayerConfig& layer = config.layer;
  const ModelShape& shape = layer.shape;
  const Parallel& parallel = layer.parallel;
  return {{"block", name_of(layer.block)},
          {"model", config.model},
          {"dtype", name_of(layer.dtype)},
          {"tp", parallel.tp.size},
          {"cp", parallel.context.cp.size},
          {"cp_kind", name_of(parallel.context.kind)},
          {"order", name_of(parallel.context.order)},
          {"ulysses", parallel.context.ulysses_size()},
          {"sequence_parallel", parallel.sequence_parallel},
          {"overlap", parallel.overlap},
          {"overlap_chunks", parallel.chunks},
          {"keep_gathered", parallel.keep_gathered},
          {"gather_output", layer.gather_output},
          {"tied_embeddings", layer.tied_embeddings},
          {"batch", shape.batch},
          {"seq", shape.seq},
          {"hidden", shape.hidden},
          {"heads", shape.heads},
          {"kv_heads", shape.kv_heads},
          {"head_dim", shape.head_dim},
          {"ffn", shape.ffn},
          {"layers", shape.layers},
          {"vocab", shape.vocab},
          {"mlp", name_of(shape.mlp)},
          {"gelu", name_of(shape.gelu)},
          {"norm", name_of(shape.norm)},
          {"norm_epsilon", static_cast<double>(shape.norm_epsilon)},
          {"positions", name_of(shape.positions)},
          {"rope_theta", static_cast<double>(shape.rope_theta)},
          {"biases", shape.biases},
          {"causal", shape.causal},
          {"window", shape.window},
          {"seqlens", shape.seqlens},
          {"seed", seed}};
}

void create_folder(const std::string& folder) {
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  if (problem)
    throw InputError{message("cannot create ", folder, ": ", problem.message(),
                             "; give --dump a folder that can be written")};
}

/// Writes this rank's tensors and returns their manifest entries.
Json dump_rank(Rank& rank, const LayerProgram& program, const Values& values,
               const std::string& folder) {
  create_folder(folder);
  Json entries = Json::array();
  for (const NamedTensor& named : program.tensors()) {
    write_npy(folder + '/' + file_name(named, rank.id()), named.tensor.shape,
              read_f32(rank.backend(), named.tensor), named.tensor.dtype == DType::i32);
    entries.push_back(describe(named, rank.id(), values));
  }
  return entries;
}

void write_manifest(const std::string& path, const Json& manifest) {
  std::ofstream file{path};
  file << manifest.dump(1) << '\n';
  file.close();
  if (!file) throw Error{message("cannot write ", path)};
}

}  // namespace

void dump(Runner& runner, Case config, const RunnerOptions& options, Transport& transport,
          const std::string& folder) {
  config.phase = Phase::step;
  on_rank_0(transport, [&] { create_folder(folder); });
  const Values values{Values::Kind::random, options.seed};
  Json mine = Json::array();
  runner.visit_program(config, [&](Rank& rank, const LayerProgram& program) {
    mine = dump_rank(rank, program, values, folder);
  });
  const std::vector<std::string> all = transport.gather(mine.dump(), Transport::Waiting::idle);
  on_rank_0(transport, [&] {
    Json tensors = Json::array();
    for (const std::string& text : all) {
      const Json entries = Json::parse(text);
      tensors.insert(tensors.end(), entries.begin(), entries.end());
    }
    write_manifest(folder + "/manifest.json", {{"program", version_text()},
                                               {"config", describe(config, options.seed)},
                                               {"tensors", std::move(tensors)}});
  });
}

}  // namespace shardmark::bench
