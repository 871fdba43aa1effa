#include "layers/presets.hpp"

#include "core/error.hpp"
#include "core/nearest.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <vector>

namespace shardmark {
namespace {

struct Sizes {
  std::int64_t layers, hidden, heads, kv_heads, ffn, vocab, seq;
};

ModelShape sized(const Sizes& sizes) {
  ModelShape shape;
  shape.layers = sizes.layers;
  shape.hidden = sizes.hidden;
  shape.heads = sizes.heads;
  shape.kv_heads = sizes.kv_heads;
  shape.head_dim = sizes.hidden / sizes.heads;
  shape.ffn = sizes.ffn;
  shape.vocab = sizes.vocab;
  shape.seq = sizes.seq;
  return shape;
}

/// Pre-norm with layer norm, biases, learned positions and the tanh form of GeLU, ffn = 4 hidden.
ModelShape gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t seq) {
  ModelShape shape = sized({layers, hidden, heads, heads, 4 * hidden, 50257, seq});
  shape.gelu = GeluKind::tanh;
  shape.positions = Positions::learned;
  return shape;
}
ModelShape gpt3(std::int64_t layers, std::int64_t hidden, std::int64_t heads) {
  return gpt(layers, hidden, heads, 2048);
}

/// RMS norm, SwiGLU, rotary positions, no biases.
ModelShape llama(const Sizes& sizes, float rope_theta) {
  ModelShape shape = sized(sizes);
  shape.mlp = MlpKind::swiglu;
  shape.norm = NormKind::rms;
  shape.positions = Positions::rotary;
  shape.rope_theta = rope_theta;
  shape.biases = false;
  return shape;
}

constexpr std::string_view gpt3_paper =
    "Brown et al., arXiv 2005.14165, table 2.1; attention dense in all layers";

const std::array<ModelPreset, 16>& table() {
  static const std::array<ModelPreset, 16> presets{{
      {"gpt2-xl", "Radford et al., Language Models are Unsupervised Multitask Learners, table 2",
       gpt(48, 1600, 25, 1024)},
      {"gpt3-125m", gpt3_paper, gpt3(12, 768, 12)},
      {"gpt3-350m", gpt3_paper, gpt3(24, 1024, 16)},
      {"gpt3-760m", gpt3_paper, gpt3(24, 1536, 16)},
      {"gpt3-1.3b",
       "Brown et al., arXiv 2005.14165, table 2.1 (GPT-3 XL); 16 heads of 128, since the printed "
       "24 x 128 is not the printed width 2048",
       gpt3(24, 2048, 16)},
      {"gpt3-2.7b", gpt3_paper, gpt3(32, 2560, 32)},
      {"gpt3-6.7b", gpt3_paper, gpt3(32, 4096, 32)},
      {"gpt3-13b",
       "Brown et al., arXiv 2005.14165, table 2.1; hidden 5120 = 40 x 128, since the printed 5140 "
       "is not 40 x 128",
       gpt3(40, 5120, 40)},
      {"gpt3-175b", gpt3_paper, gpt3(96, 12288, 96)},
      {"llama2-7b", "Touvron et al., arXiv 2307.09288, table 1 and the released configuration",
       llama({32, 4096, 32, 32, 11008, 32000, 4096}, 1e4F)},
      {"llama2-13b", "Touvron et al., arXiv 2307.09288, table 1 and the released configuration",
       llama({40, 5120, 40, 40, 13824, 32000, 4096}, 1e4F)},
      {"llama2-70b", "Touvron et al., arXiv 2307.09288, table 1 and the released configuration",
       llama({80, 8192, 64, 8, 28672, 32000, 4096}, 1e4F)},
      {"llama3-8b", "Grattafiori et al., arXiv 2407.21783, table 3; vocabulary as released",
       llama({32, 4096, 32, 8, 14336, 128256, 8192}, 5e5F)},
      {"llama3-70b", "Grattafiori et al., arXiv 2407.21783, table 3; vocabulary as released",
       llama({80, 8192, 64, 8, 28672, 128256, 8192}, 5e5F)},
      {"llama3-405b", "Grattafiori et al., arXiv 2407.21783, table 3; vocabulary as released",
       llama({126, 16384, 128, 8, 53248, 128256, 8192}, 5e5F)},
      {"mistral-7b",
       "Jiang et al., arXiv 2310.06825, table 1; seq 4096, its attention window, so full causal",
       llama({32, 4096, 32, 8, 14336, 32000, 4096}, 1e4F)},
  }};
  return presets;
}

}  // namespace

std::span<const ModelPreset> model_presets() { return table(); }

const ModelPreset& find_model(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ModelPreset& preset : table()) {
    if (preset.name == name) return preset;
    names.push_back(preset.name);
  }
  std::string lower{name};
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::string_view like = nearest(lower, names);
  for (const std::string_view known : names)
    if (like.empty() && !lower.empty() && known.starts_with(lower)) like = known;
  const std::string hint = like.empty() ? "" : message("; did you mean ", like, '?');
  throw InputError{
      message("unknown model ", name,
              hint.empty() ? "; shardmark-tp --list-models prints the known ones" : hint)};
}

std::int64_t padded_vocab(std::int64_t vocab, std::int64_t tp) {
  const std::int64_t multiple = 128 * tp;
  return (vocab + multiple - 1) / multiple * multiple;
}

}  // namespace shardmark
