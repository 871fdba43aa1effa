#include "sim/hardware.hpp"

#include "core/error.hpp"
#include "tests/sim/machines.hpp"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <functional>

namespace shardmark::test {
namespace {

using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Machines, ThoseThatComeAlongAreReadAndSaySo) {
  EXPECT_THAT(machine_names(), ElementsAre("a100-sxm-8", "h100-sxm-8", "h200-sxm-8"));
  for (const std::string& name : machine_names()) {
    const Machine machine = load_machine(name);
    EXPECT_EQ(machine.name, name);
    EXPECT_EQ(machine.ranks_per_node.value, 8);
    EXPECT_THAT(machine.about, HasSubstr("nothing measured by us"));
    EXPECT_TRUE(machine.has_between);
    EXPECT_GT(machine.peak_tflops(DType::bf16), machine.peak_tflops(DType::f32));
    ASSERT_TRUE(machine.memory_GB.has_value()) << name;
    EXPECT_EQ(machine.memory_GB->value, name == "h200-sxm-8" ? 141 : 80) << name;
    EXPECT_THAT(machine.memory_GB->source, HasSubstr("data sheet"));
  }
}

TEST(Machines, AFileNeedNotSayHowMuchMemoryThereIs) {
  Json json = Json::parse(to_json(load_machine("h100-sxm-8")));
  json.erase("memory_capacity");
  EXPECT_FALSE(parse_machine(json.dump(), "mine.json").memory_GB.has_value());
}

TEST(Machines, TextGivesTheSameMachineBack) {
  for (const std::string& name : machine_names()) {
    const std::string text = to_json(load_machine(name));
    EXPECT_EQ(to_json(parse_machine(text, "again")), text);
  }
}

TEST(Machines, UnknownNameListsTheKnownOnes) {
  try {
    (void)load_machine("h1000");
    FAIL() << "loaded";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'h1000'"), HasSubstr("a100-sxm-8, h100-sxm-8")));
  }
}

TEST(Machines, AnEmptyFileSaysThatItIsEmpty) {
  const std::string path = testing::TempDir() + "empty_machine.json";
  std::ofstream{path};
  try {
    (void)load_machine(path);
    FAIL() << "loaded";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("empty_machine.json is empty"));
  }
}

TEST(Machines, NodesAreFilledInOrder) {
  const Machine machine = round_machine(3);
  EXPECT_EQ(machine.node_of(2), 0);
  EXPECT_EQ(machine.node_of(3), 1);
}

TEST(Rates, FollowAPowerLawBetweenPointsAndStayBeyond) {
  const Rates table{.points = {{100, 1}, {10000, 4}}};
  EXPECT_EQ(table.at(1), 1);
  EXPECT_EQ(table.at(100), 1);
  EXPECT_NEAR(table.at(1000), 2, 1e-12);
  EXPECT_EQ(table.at(10000), 4);
  EXPECT_EQ(table.at(1e9), 4);
}

TEST(Rates, TheMostSpecificTableCounts) {
  Machine machine = round_machine(1);
  const auto add = [&](const char* op, const char* dtype, double rate) {
    machine.rates.push_back({op, dtype, Rates::Of::flops, {{1, rate}}, "made up"});
  };
  const auto rate = [&](const char* op, DType dtype) {
    return machine.find_rates(op, dtype, Rates::Of::flops)->points.front().rate;
  };
  EXPECT_EQ(machine.find_rates("matmul", DType::f32, Rates::Of::flops), nullptr);
  add("any", "any", 1);
  EXPECT_EQ(rate("matmul", DType::f32), 1);
  add("any", "f32", 2);
  EXPECT_EQ(rate("matmul", DType::f32), 2);
  add("matmul", "any", 3);
  EXPECT_EQ(rate("matmul", DType::f32), 3);
  add("matmul", "f32", 4);
  EXPECT_EQ(rate("matmul", DType::f32), 4);
  EXPECT_EQ(rate("matmul", DType::bf16), 3);
  EXPECT_EQ(rate("attention", DType::f32), 2);
  EXPECT_EQ(machine.find_rates("matmul", DType::f32, Rates::Of::bytes), nullptr);
}

/// One change to a good file, and what the refusal says.
struct Mistake {
  std::string name;
  std::function<void(Json&)> make;
  std::string says;
};

class MachineMistakes : public testing::TestWithParam<Mistake> {};

TEST_P(MachineMistakes, IsRefusedNamingKeyAndRule) {
  Json json = Json::parse(to_json(load_machine("h100-sxm-8")));
  GetParam().make(json);
  try {
    (void)parse_machine(json.dump(), "mine.json");
    FAIL() << "read";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("mine.json"), HasSubstr(GetParam().says)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, MachineMistakes,
    testing::ValuesIn(std::vector<Mistake>{
        {"UnknownKey", [](Json& j) { j["colour"] = 1; },
         "has the unknown key 'colour'; allowed are schema_version, name"},
        {"UnknownKeyBelow", [](Json& j) { j["inside"]["lanes"] = 1; },
         "inside has the unknown key 'lanes'; allowed are latency, bandwidth, collectives"},
        {"UnknownDtype", [](Json& j) { j["peaks"]["f33"] = j["peaks"]["f32"]; },
         "peaks has the unknown key 'f33'; allowed are f32, bf16"},
        {"UnknownOp", [](Json& j) { j["rates"][0]["op"] = "gemm"; },
         "rates[0].op is 'gemm'; allowed are any, matmul"},
        {"MissingKey", [](Json& j) { j.erase("inside"); }, "lacks the key 'inside'"},
        {"WrongUnit", [](Json& j) { j["memory_bandwidth"]["unit"] = "TB/s"; },
         "memory_bandwidth.unit is 'TB/s'; allowed are GB/s"},
        {"WrongUnitOfMemory", [](Json& j) { j["memory_capacity"]["unit"] = "GiB"; },
         "memory_capacity.unit is 'GiB'; allowed are GB"},
        {"NoMemory", [](Json& j) { j["memory_capacity"]["value"] = 0; },
         "memory_capacity.value is 0; it must be above 0"},
        {"WrongRateUnit", [](Json& j) { j["rates"][0]["rate_unit"] = "GB/s"; },
         "rates[0].rate_unit is 'GB/s'; allowed are TFLOP/s"},
        {"Negative", [](Json& j) { j["between"]["latency"]["value"] = -1; },
         "between.latency.value is -1; it must be 0 or more"},
        {"ZeroBandwidth", [](Json& j) { j["inside"]["bandwidth"]["value"] = 0; },
         "inside.bandwidth.value is 0; it must be above 0"},
        {"EndlessLatency", [](Json& j) { j["between"]["latency"]["value"] = 1e300; },
         "between.latency.value is 1e+300; it must be at most 1e+09 us"},
        {"NoBandwidth", [](Json& j) { j["inside"]["bandwidth"]["value"] = 1e-300; },
         "inside.bandwidth.value is 1e-300; it must be at least 1e-09 GB/s"},
        {"NoRate", [](Json& j) { j["rates"][0]["points"][0][1] = 1e-300; },
         "rates[0].points[0][1] is 1e-300; it must be at least 1e-12 TFLOP/s"},
        {"NoNumber", [](Json& j) { j["peaks"]["f32"]["value"] = "67"; },
         "peaks.f32.value is \"67\"; it must be a number"},
        {"NoSource", [](Json& j) { j["peaks"]["f32"].erase("source"); },
         "peaks.f32 lacks the key 'source'"},
        {"EmptySource", [](Json& j) { j["peaks"]["f32"]["source"] = ""; },
         "peaks.f32.source must be a text"},
        {"AbovePeak", [](Json& j) { j["rates"][0]["points"][1][1] = 1200; },
         "rates[0] has 1200 TFLOP/s, above the peak of 989 for bf16"},
        {"Unsorted", [](Json& j) { j["rates"][0]["points"][1][0] = 1; },
         "rates[0].points[1] must have a larger size than the point before"},
        {"HalfARank", [](Json& j) { j["ranks_per_node"]["value"] = 7.5; },
         "ranks_per_node is 7.5; it must be a whole number"},
        {"HalfAnOverlap", [](Json& j) { j["overlap"]["value"] = 0.5; },
         "overlap is 0.5; it must be 0 or 1"},
        {"UnknownAlgorithm", [](Json& j) { j["collectives"]["algorithms"] = {"nvls"}; },
         "collectives.algorithms[0] is 'nvls'; allowed are ring, tree, recursive, hierarchical"},
        {"OtherSchema", [](Json& j) { j["schema_version"] = 2; }, "schema_version must be 1"},
        {"NoPeak", [](Json& j) { j["peaks"] = Json::object(); },
         "peaks must have one dtype at least"},
    }),
    [](const auto& mistake) { return mistake.param.name; });

TEST(Machines, ATextThatIsNotJsonOrHasAKeyTwiceIsRefused) {
  const auto reason = [](const std::string& text) -> std::string {
    try {
      (void)parse_machine(text, "mine.json");
    } catch (const InputError& error) {
      return error.what();
    }
    return "read";
  };
  EXPECT_THAT(reason("{"), HasSubstr("mine.json is not JSON"));
  EXPECT_THAT(reason("[]"), HasSubstr("must be an object"));
  EXPECT_THAT(reason(R"({"name": "a", "name": "b"})"), HasSubstr("\"name\" is given twice"));
}

}  // namespace
}  // namespace shardmark::test
