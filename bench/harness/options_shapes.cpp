#include "bench/harness/handlers.hpp"

namespace shardmark::bench {

void add_shape_options(CommandLine& line, Options& options) {
  line.group("Shapes");
  line.add("--block",
           {"NAME,...", "what to run: linear-column, linear-row, mlp, attention, block, model",
            "block", "mlp,attention,block"},
           set_choices<BlockKind>(options.blocks, {{"linear-column", BlockKind::linear_column},
                                                   {"linear-row", BlockKind::linear_row},
                                                   {"mlp", BlockKind::mlp},
                                                   {"attention", BlockKind::attention},
                                                   {"block", BlockKind::block},
                                                   {"model", BlockKind::model}}));
  add_model_option(line, options);
  line.add("--hidden", {"N,...", "hidden width", "1k", "1k,2k,4k"}, set_sizes(options.hidden));
  add_head_options(line, options);
  line.add("--ffn",
           {"N,...",
            "inner width of the MLP; output (input) width of "
            "linear-column (linear-row)",
            "4 x hidden", "14336"},
           set_sizes(options.ffn));
  add_layer_kind_options(line, options);
  line.add("--vocab",
           {"N,...",
            "vocabulary of --block model; taken as it is, while a model's own vocabulary is padded "
            "to a multiple of 128 x tp",
            "51200", "32k"},
           set_sizes(options.vocab));
  line.add("--layers", {"N,...", "blocks in --block model", "1", "4"}, set_sizes(options.layers));
  line.add("--seq", {"N,...", "sequence length (tokens)", "1k", "512,1k"}, set_sizes(options.seq));
  line.add("--batch", {"N,...", "sequences", "1", "1,4"}, set_sizes(options.batch));
  add_dtype_option(line, options);
}

void add_model_option(CommandLine& line, Options& options) {
  line.add("--model",
           {"NAME,...",
            "shape and kinds of a public model (--list-models); other options replace single "
            "values, all others stay as published",
            "none", "llama3-8b"},
           [&options](std::string_view option, const std::string& text) {
             options.models = split_list(option, text);
           });
}

void add_head_options(CommandLine& line, Options& options) {
  line.add("--heads",
           {"N,...", "query heads; the head width is hidden / heads",
            "hidden / 128, so hidden must be a multiple of 128 then", "16"},
           set_sizes(options.heads));
  line.add("--kv-heads", {"N,...", "key and value heads (grouped-query attention)", "heads", "8"},
           set_sizes(options.kv_heads));
}

void add_layer_kind_options(CommandLine& line, Options& options) {
  line.add(
      "--mlp", {"NAME", "gelu or swiglu", "gelu", "swiglu"},
      set_choice<MlpKind>(options.mlp, {{"gelu", MlpKind::gelu}, {"swiglu", MlpKind::swiglu}}));
  line.add("--gelu", {"NAME", "form of GeLU: erf or tanh", "erf", "tanh"},
           set_choice<GeluKind>(options.gelu, {{"erf", GeluKind::erf}, {"tanh", GeluKind::tanh}}));
  line.add(
      "--norm", {"NAME", "layer or rms", "layer", "rms"},
      set_choice<NormKind>(options.norm, {{"layer", NormKind::layer}, {"rms", NormKind::rms}}));
  if (options.tool != Tool::cp)
    line.add("--positions",
             {"NAME",
              options.tool == Tool::tp ? "none, rotary, or learned (in --block model only)"
                                       : "none, rotary, or learned",
              "none", "rotary"},
             set_choice<Positions>(options.positions, {{"none", Positions::none},
                                                       {"rotary", Positions::rotary},
                                                       {"learned", Positions::learned}}));
  else
    line.add("--positions", {"NAME", "none or rotary", "none", "rotary"},
             set_choice<Positions>(options.positions,
                                   {{"none", Positions::none}, {"rotary", Positions::rotary}}));
  line.add("--biases", {"on|off", "biases of the linears", "on", "off"},
           set_choice<bool>(options.biases, {{"on", true}, {"off", false}}));
  line.add("--causal", {"on|off", "causal attention mask", "on", "off"},
           set_choice<bool>(options.causal, {{"on", true}, {"off", false}}));
}

void add_dtype_option(CommandLine& line, Options& options) {
  line.add("--dtype", {"NAME,...", "f32, or bf16 (matmuls accumulate in f32)", "f32", "f32,bf16"},
           set_choices<DType>(options.dtypes, {{"f32", DType::f32}, {"bf16", DType::bf16}}));
}

}  // namespace shardmark::bench
