#include "bench/harness/command_line.hpp"
#include "bench/harness/quantity.hpp"
#include "layers/presets.hpp"

namespace shardmark::bench {
namespace {

using Help = CommandLine::Help;

void add_sizes(CommandLine& line, const std::string& name, const Help& help,
               std::vector<std::int64_t>& into) {
  line.add(name, help, [&into](std::string_view option, const std::string& text) {
    into = parse_list(option, text, parse_quantity);
  });
}

/// An option with one of a few names.
template <class T, class Into>
void add_choice(CommandLine& line, const std::string& name, const Help& help,
                const std::vector<std::pair<std::string_view, T>>& choices, Into& into) {
  line.add(name, help, [choices, &into](std::string_view option, const std::string& text) {
    into = parse_choice(option, text, choices);
  });
}

}  // namespace

void add_shape_options(CommandLine& line, Options& options) {
  line.group("Shapes");
  line.add("--block",
           {"NAME,...", "what to run: linear-column, linear-row, mlp, attention, block, model",
            "block", "mlp,attention,block"},
           [&options](std::string_view option, const std::string& text) {
             options.blocks =
                 parse_list(option, text, [](std::string_view name, std::string_view part) {
                   using enum BlockKind;
                   return parse_choice<BlockKind>(name, part,
                                                  {{"linear-column", linear_column},
                                                   {"linear-row", linear_row},
                                                   {"mlp", mlp},
                                                   {"attention", attention},
                                                   {"block", block},
                                                   {"model", model}});
                 });
           });
  line.add("--model",
           {"NAME,...",
            "shape and kinds of a public model (--list-models); other options replace single "
            "values, all others stay as published",
            "none", "llama3-8b"},
           [&options](std::string_view option, const std::string& text) {
             options.models = split_list(option, text);
           });
  add_sizes(line, "--hidden", {"N,...", "hidden width", "1k", "1k,2k,4k"}, options.hidden);
  add_sizes(line, "--heads",
            {"N,...", "query heads; the head width is hidden / heads",
             "hidden / 128, so hidden must be a multiple of 128 then", "16"},
            options.heads);
  add_sizes(line, "--kv-heads",
            {"N,...", "key and value heads (grouped-query attention)", "heads", "8"},
            options.kv_heads);
  add_sizes(line, "--ffn",
            {"N,...",
             "inner width of the MLP; output (input) width of "
             "linear-column (linear-row)",
             "4 x hidden", "14336"},
            options.ffn);
  add_choice<MlpKind>(line, "--mlp", {"NAME", "gelu or swiglu", "gelu", "swiglu"},
                      {{"gelu", MlpKind::gelu}, {"swiglu", MlpKind::swiglu}}, options.mlp);
  add_choice<GeluKind>(line, "--gelu", {"NAME", "form of GeLU: erf or tanh", "erf", "tanh"},
                       {{"erf", GeluKind::erf}, {"tanh", GeluKind::tanh}}, options.gelu);
  add_choice<NormKind>(line, "--norm", {"NAME", "layer or rms", "layer", "rms"},
                       {{"layer", NormKind::layer}, {"rms", NormKind::rms}}, options.norm);
  add_choice<Positions>(
      line, "--positions",
      {"NAME", "none, rotary, or learned (in --block model only)", "none", "rotary"},
      {{"none", Positions::none}, {"rotary", Positions::rotary}, {"learned", Positions::learned}},
      options.positions);
  add_choice<bool>(line, "--biases", {"on|off", "biases of the linears", "on", "off"},
                   {{"on", true}, {"off", false}}, options.biases);
  add_choice<bool>(line, "--causal", {"on|off", "causal attention mask", "on", "off"},
                   {{"on", true}, {"off", false}}, options.causal);
  add_sizes(
      line, "--vocab",
      {"N,...",
       "vocabulary of --block model; taken as it is, while a model's own vocabulary is padded "
       "to a multiple of 128 x tp",
       "51200", "32k"},
      options.vocab);
  add_sizes(line, "--layers", {"N,...", "blocks in --block model", "1", "4"}, options.layers);
  add_sizes(line, "--seq", {"N,...", "sequence length (tokens)", "1k", "512,1k"}, options.seq);
  add_sizes(line, "--batch", {"N,...", "sequences", "1", "1,4"}, options.batch);
  line.add(
      "--dtype", {"NAME,...", "f32, or bf16 (matmuls accumulate in f32)", "f32", "f32,bf16"},
      [&options](std::string_view option, const std::string& text) {
        options.dtypes = parse_list(option, text, [](std::string_view name, std::string_view part) {
          return parse_choice<DType>(name, part, {{"f32", DType::f32}, {"bf16", DType::bf16}});
        });
      });
}

}  // namespace shardmark::bench
