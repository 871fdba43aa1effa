#pragma once

#include "layers/shape.hpp"

#include <span>
#include <string>
#include <string_view>

namespace shardmark {

/// The published shape of a well-known model. `vocab` is the tokenizer's; programs pad it.
struct ModelPreset {
  std::string_view name, source;
  ModelShape shape;
};
[[nodiscard]] std::span<const ModelPreset> model_presets();
/// Throws InputError with the nearest names when there is no such model.
[[nodiscard]] const ModelPreset& find_model(std::string_view name);
/// The next multiple of 128 x tp, as Megatron-LM pads the vocabulary.
[[nodiscard]] std::int64_t padded_vocab(std::int64_t vocab, std::int64_t tp);

}  // namespace shardmark
