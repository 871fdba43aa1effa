#include "core/error.hpp"
#include "core/ops.hpp"
#include "sim/hardware.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <set>

namespace shardmark {
namespace {

using Json = nlohmann::ordered_json;
using Names = std::vector<std::string>;

constexpr int machine_schema_version = 1;

std::string listed(const Names& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// A value of the file and the path that leads to it, "inside.latency".
class Value {
 public:
  Value(const Json& json, const std::string& where, std::string path)
      : json_{json}, where_{where}, path_{std::move(path)} {}

  [[noreturn]] void refuse(const std::string& problem) const {
    throw InputError{
        message("machine file ", where_, ": ", path_.empty() ? "" : path_ + " ", problem)};
  }

  /// An object with no other keys than these.
  const Value& with_keys(const Names& required, const Names& optional = {}) const {
    if (!json_.is_object()) refuse("must be an object with the keys " + listed(required));
    Names allowed = required;
    allowed.insert(allowed.end(), optional.begin(), optional.end());
    for (const auto& [key, value] : json_.items())
      if (std::ranges::find(allowed, key) == allowed.end())
        refuse(message("has the unknown key '", key, "'; allowed are ", listed(allowed)));
    for (const std::string& key : required)
      if (!json_.contains(key))
        refuse(message("lacks the key '", key, "'; it needs ", listed(required)));
    return *this;
  }

  [[nodiscard]] bool has(const std::string& key) const { return json_.contains(key); }
  [[nodiscard]] Value at(const std::string& key) const {
    return {json_.at(key), where_, path_.empty() ? key : path_ + "." + key};
  }
  [[nodiscard]] Names keys() const {
    Names names;
    for (const auto& [key, value] : json_.items()) names.push_back(key);
    return names;
  }
  /// The elements of an array that is not empty.
  [[nodiscard]] std::vector<Value> elements(const std::string& of_what) const {
    if (!json_.is_array() || json_.empty()) refuse("must be a list of " + of_what);
    std::vector<Value> values;
    for (std::size_t i = 0; i < json_.size(); ++i)
      values.emplace_back(json_[i], where_, message(path_, '[', i, ']'));
    return values;
  }

  [[nodiscard]] std::string text() const {
    if (!json_.is_string() || json_.get<std::string>().empty()) refuse("must be a text");
    return json_.get<std::string>();
  }
  std::string one_of(const Names& allowed) const {
    const std::string value = text();
    if (std::ranges::find(allowed, value) == allowed.end())
      refuse(message("is '", value, "'; allowed are ", listed(allowed)));
    return value;
  }
  [[nodiscard]] double number(bool zero_allowed) const {
    const double value = json_.is_number() ? json_.get<double>() : -1;
    if (!json_.is_number()) refuse(message("is ", json_.dump(), "; it must be a number"));
    if (!std::isfinite(value) || value < 0 || (value == 0 && !zero_allowed))
      refuse(message("is ", json_.dump(), "; it must be ", zero_allowed ? "0 or more" : "above 0"));
    return value;
  }

  /// A time or a rate within what predictions can add up in nanoseconds.
  [[nodiscard]] double quantity(const std::string& unit, bool zero_allowed) const {
    constexpr double longest_us = 1e9;
    const double value = number(zero_allowed);
    const double least = unit == "GB/s" ? 1e-9 : unit == "TFLOP/s" ? 1e-12 : 0;  // 1 B/s, 1 FLOP/s
    if (value < least)
      refuse(message("is ", json_.dump(), "; it must be at least ", least, ' ', unit));
    if (unit == "us" && value > longest_us)
      refuse(message("is ", json_.dump(), "; it must be at most ", longest_us, ' ', unit));
    return value;
  }

  /// {"value": 3350, "unit": "GB/s", "source": "..."}
  [[nodiscard]] Fact fact(const std::string& unit, bool zero_allowed) const {
    with_keys({"value", "unit", "source"});
    at("unit").one_of({unit});
    return {at("value").quantity(unit, zero_allowed), at("source").text()};
  }

 private:
  const Json& json_;
  const std::string& where_;
  std::string path_;
};

template <class... Os>
Names names_of_ops(const std::variant<Os...>&) {
  return {std::string{name_of(Op{Os{}})}...};
}

Names dtype_names() {
  Names names;
  for (std::size_t i = 0; i < num_dtypes; ++i) names.emplace_back(name_of(static_cast<DType>(i)));
  return names;
}

Names with_any(Names names) {
  names.insert(names.begin(), "any");
  return names;
}

Rates parse_rates(const Value& value) {
  value.with_keys({"op", "dtype", "size_unit", "rate_unit", "points", "source"});
  Rates table;
  table.op = value.at("op").one_of(with_any(names_of_ops(ComputeOp{})));
  table.dtype = value.at("dtype").one_of(with_any(dtype_names()));
  const bool of_flops = value.at("size_unit").one_of({"FLOP", "B"}) == "FLOP";
  table.of = of_flops ? Rates::Of::flops : Rates::Of::bytes;
  const std::string rate_unit = value.at("rate_unit").one_of({of_flops ? "TFLOP/s" : "GB/s"});
  for (const Value& point : value.at("points").elements("pairs [size, rate]")) {
    const std::vector<Value> pair = point.elements("size and rate");
    if (pair.size() != 2) point.refuse("must be a pair [size, rate]");
    table.points.push_back({pair[0].number(false), pair[1].quantity(rate_unit, false)});
    if (table.points.size() > 1 &&
        table.points.back().size <= std::prev(table.points.end(), 2)->size)
      point.refuse("must have a larger size than the point before");
  }
  table.source = value.at("source").text();
  return table;
}

/// A table whose rate no device of this kind can reach is a slip of a unit.
void check_below_peak(const Machine& machine, const Rates& table, const Value& value) {
  if (table.of != Rates::Of::flops) return;
  double peak = 0;
  for (const auto& [dtype, fact] : machine.peaks_tflops)
    if (table.dtype == "any" || table.dtype == dtype) peak = std::max(peak, fact.value);
  for (const Rates::Point& point : table.points)
    if (point.rate > peak)
      value.refuse(message("has ", point.rate, " TFLOP/s, above the peak of ", peak, " for ",
                           table.dtype, "; peaks and rates must agree"));
}

Link parse_link(const Value& value) {
  return {value.at("latency").fact("us", true), value.at("bandwidth").fact("GB/s", false)};
}

Network parse_network(const Value& value) {
  value.with_keys({"latency", "bandwidth"}, {"collectives"});
  Network network{.link = parse_link(value)};
  if (!value.has("collectives")) return network;
  const Value collectives = value.at("collectives");
  collectives.with_keys({}, names_of_ops(CommunicationOp{}));
  for (const std::string& op : collectives.keys())
    network.collectives[op] = parse_link(collectives.at(op).with_keys({"latency", "bandwidth"}));
  return network;
}

std::vector<CommAlgorithm> parse_algorithms(const Value& value) {
  Names names;
  for (std::size_t i = 0; i < num_comm_algorithms; ++i)
    names.emplace_back(name_of(static_cast<CommAlgorithm>(i)));
  std::vector<CommAlgorithm> algorithms;
  for (const Value& element : value.elements("algorithms")) {
    const auto place = std::ranges::find(names, element.one_of(names));
    algorithms.push_back(static_cast<CommAlgorithm>(place - names.begin()));
  }
  return algorithms;
}

Machine parse(const Value& file) {
  file.with_keys({"schema_version", "name", "about", "peaks", "memory_bandwidth", "launch_overhead",
                  "ranks_per_node", "inside", "collectives", "overlap"},
                 {"rates", "between", "memory_capacity"});
  if (file.at("schema_version").number(false) != machine_schema_version)
    file.at("schema_version").refuse(message("must be ", machine_schema_version));
  Machine machine;
  machine.name = file.at("name").text();
  machine.about = file.at("about").text();
  const Value peaks = file.at("peaks");
  for (const std::string& dtype : peaks.with_keys({}, dtype_names()).keys())
    machine.peaks_tflops[dtype] = peaks.at(dtype).fact("TFLOP/s", false);
  if (machine.peaks_tflops.empty()) peaks.refuse("must have one dtype at least");
  if (file.has("rates"))
    for (const Value& table : file.at("rates").elements("tables")) {
      machine.rates.push_back(parse_rates(table));
      check_below_peak(machine, machine.rates.back(), table);
    }
  machine.memory_GBps = file.at("memory_bandwidth").fact("GB/s", false);
  if (file.has("memory_capacity")) machine.memory_GB = file.at("memory_capacity").fact("GB", false);
  machine.launch_overhead_us = file.at("launch_overhead").fact("us", true);
  machine.ranks_per_node = file.at("ranks_per_node").fact("ranks", false);
  const double ranks = machine.ranks_per_node.value;
  if (ranks != std::floor(ranks) || ranks > 1 << 20)
    file.at("ranks_per_node").refuse(message("is ", ranks, "; it must be a whole number"));
  machine.inside = parse_network(file.at("inside"));
  machine.has_between = file.has("between");
  if (machine.has_between) machine.between = parse_network(file.at("between"));
  const Value collectives = file.at("collectives");
  collectives.with_keys({"overhead", "algorithms"});
  machine.collective_overhead_us = collectives.at("overhead").fact("us", true);
  machine.algorithms = parse_algorithms(collectives.at("algorithms"));
  machine.overlap = file.at("overlap").fact("of 1", true);
  if (machine.overlap.value != 0 && machine.overlap.value != 1)
    file.at("overlap").refuse(message("is ", machine.overlap.value, "; it must be 0 or 1"));
  return machine;
}

Json to_json(const Fact& fact, const char* unit) {
  return {{"value", fact.value}, {"unit", unit}, {"source", fact.source}};
}
Json to_json(const Link& link) {
  return {{"latency", to_json(link.latency_us, "us")},
          {"bandwidth", to_json(link.bandwidth_GBps, "GB/s")}};
}
Json to_json(const Network& network) {
  Json json = to_json(network.link);
  for (const auto& [op, link] : network.collectives) json["collectives"][op] = to_json(link);
  return json;
}
Json to_json(const Rates& table) {
  Json points = Json::array();
  for (const Rates::Point& point : table.points) points.push_back({point.size, point.rate});
  const bool of_flops = table.of == Rates::Of::flops;
  return {{"op", table.op},
          {"dtype", table.dtype},
          {"size_unit", of_flops ? "FLOP" : "B"},
          {"rate_unit", of_flops ? "TFLOP/s" : "GB/s"},
          {"points", std::move(points)},
          {"source", table.source}};
}

/// Throws InputError when an object has a key twice; the parser itself would keep the last one.
Json parse_strictly(const std::string& text, const std::string& where) {
  std::vector<std::set<std::string>> open;
  const auto check = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second)
      throw InputError{message("machine file ", where, ": the key ", parsed.dump(),
                               " is given twice in one object")};
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const Json::exception& error) {
    throw InputError{message("machine file ", where, " is not JSON: ", error.what())};
  }
}

}  // namespace

Machine parse_machine(const std::string& text, const std::string& where) {
  const Json json = parse_strictly(text, where);
  return parse(Value{json, where, ""});
}

std::string to_json(const Machine& machine) {
  Json json{{"schema_version", machine_schema_version},
            {"name", machine.name},
            {"about", machine.about},
            {"peaks", Json::object()}};
  for (const auto& [dtype, peak] : machine.peaks_tflops)
    json["peaks"][dtype] = to_json(peak, "TFLOP/s");
  for (const Rates& table : machine.rates) json["rates"].push_back(to_json(table));
  json["memory_bandwidth"] = to_json(machine.memory_GBps, "GB/s");
  if (machine.memory_GB) json["memory_capacity"] = to_json(*machine.memory_GB, "GB");
  json["launch_overhead"] = to_json(machine.launch_overhead_us, "us");
  json["ranks_per_node"] = to_json(machine.ranks_per_node, "ranks");
  json["inside"] = to_json(machine.inside);
  if (machine.has_between) json["between"] = to_json(machine.between);
  Json algorithms = Json::array();
  for (const CommAlgorithm algorithm : machine.algorithms) algorithms.push_back(name_of(algorithm));
  json["collectives"] = {{"overhead", to_json(machine.collective_overhead_us, "us")},
                         {"algorithms", std::move(algorithms)}};
  json["overlap"] = to_json(machine.overlap, "of 1");
  return json.dump(1) + "\n";
}

}  // namespace shardmark
