#include "layers/presets.hpp"

#include "core/error.hpp"
#include "layers/volume.hpp"

#include <gmock/gmock.h>

#include <set>

namespace shardmark {
namespace {

/// Parameters of all matrices, embedding included once, in billions.
double billions(const ModelPreset& preset) {
  LayerConfig config;
  config.block = BlockKind::model;
  config.shape = preset.shape;
  config.parallel.tp.size = 1;
  return matmul_parameters(config) / 1e9;
}

TEST(Presets, AreConsistentAndHaveASource) {
  EXPECT_GE(model_presets().size(), 12U);
  std::set<std::string_view> names;
  for (const ModelPreset& preset : model_presets()) {
    const ModelShape& shape = preset.shape;
    EXPECT_TRUE(names.insert(preset.name).second) << preset.name;
    EXPECT_THAT(std::string{preset.source}, testing::Not(testing::IsEmpty()));
    EXPECT_EQ(shape.heads * shape.head_dim, shape.hidden) << preset.name;
    EXPECT_EQ(shape.heads % shape.kv_heads, 0) << preset.name;
  }
}

TEST(Presets, HaveTheSizeInTheirName) {
  const auto expect = [](const char* name, double size) {
    EXPECT_NEAR(billions(find_model(name)), size, 0.06 * size) << name;
  };
  expect("gpt3-125m", 0.125);
  expect("gpt3-350m", 0.356);
  expect("gpt3-760m", 0.76);
  expect("gpt3-1.3b", 1.3);
  expect("gpt3-2.7b", 2.65);
  expect("gpt3-6.7b", 6.65);
  expect("gpt3-13b", 12.85);
  expect("gpt3-175b", 174.6);
  expect("gpt2-xl", 1.56);
  expect("llama2-7b", 6.6);
  expect("llama2-13b", 12.9);
  expect("llama2-70b", 68.7);
  expect("llama3-8b", 7.5);
  expect("llama3-70b", 69.5);
  expect("llama3-405b", 403.7);
  expect("mistral-7b", 7.1);
}

TEST(Presets, Gpt13bIs40HeadsOf128) {
  const ModelShape& shape = find_model("gpt3-13b").shape;
  EXPECT_EQ(shape.hidden, 5120);
  EXPECT_EQ(shape.heads, 40);
  EXPECT_EQ(shape.gelu, GeluKind::tanh);
  EXPECT_EQ(shape.positions, Positions::learned);
  EXPECT_TRUE(shape.biases);
}

TEST(Presets, VocabularyIsPaddedToAMultipleOf128TimesTp) {
  EXPECT_EQ(padded_vocab(50257, 1), 50304);
  EXPECT_EQ(padded_vocab(50257, 8), 51200);
  EXPECT_EQ(padded_vocab(128256, 2), 128256);
}

TEST(Presets, AnUnknownNameSuggestsTheNearest) {
  try {
    (void)find_model("lama3-8b");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("did you mean llama3-8b?"));
  }
}

}  // namespace
}  // namespace shardmark
