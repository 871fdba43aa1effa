#include "sim/hardware.hpp"

#include "core/error.hpp"
#include "sim/machines_internal.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace shardmark {

std::string_view name_of(CommAlgorithm algorithm) {
  static constexpr std::array<std::string_view, num_comm_algorithms> names{
      "ring", "tree", "recursive", "hierarchical"};
  return names[static_cast<std::size_t>(algorithm)];
}

double Rates::at(double size) const {
  if (size <= points.front().size) return points.front().rate;
  const auto above = std::ranges::upper_bound(points, size, {}, &Point::size);
  if (above == points.end()) return points.back().rate;
  const Point& below = *std::prev(above);
  const double part = std::log(size / below.size) / std::log(above->size / below.size);
  return below.rate * std::pow(above->rate / below.rate, part);
}

const Link& Network::of(std::string_view op) const {
  const auto found = collectives.find(std::string{op});
  return found == collectives.end() ? link : found->second;
}

double Machine::peak_tflops(DType dtype) const {
  const auto found = peaks_tflops.find(std::string{name_of(dtype)});
  if (found != peaks_tflops.end()) return found->second.value;
  std::string known;
  for (const auto& [name_of_known, peak] : peaks_tflops)
    known += (known.empty() ? "" : ", ") + name_of_known;
  throw InputError{message("machine ", name, " has no peak for ", shardmark::name_of(dtype),
                           "; it has one for ", known)};
}

const Rates* Machine::find_rates(std::string_view op, DType dtype, Rates::Of of) const {
  const Rates* best = nullptr;
  int best_rank = -1;
  for (const Rates& table : rates) {
    const bool same_op = table.op == op, same_dtype = table.dtype == name_of(dtype);
    if (table.of != of || (!same_op && table.op != "any") || (!same_dtype && table.dtype != "any"))
      continue;
    const int rank = (same_op ? 2 : 0) + (same_dtype ? 1 : 0);
    if (rank > best_rank) best = &table;
    best_rank = std::max(best_rank, rank);
  }
  return best;
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const MachineText& machine : machine_texts()) names.emplace_back(machine.name);
  return names;
}

Machine load_machine(const std::string& name_or_path) {
  std::string known;
  for (const MachineText& machine : machine_texts()) {
    if (machine.name == name_or_path) return parse_machine(std::string{machine.text}, name_or_path);
    known += message(known.empty() ? "" : ", ", machine.name);
  }
  std::ifstream file{name_or_path, std::ios::binary};
  const std::string text{std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{}};
  std::error_code error;
  if (text.empty() && std::filesystem::is_regular_file(name_or_path, error) && file)
    throw InputError{message("machine file ", name_or_path, " is empty; ",
                             "sim/README.md shows what belongs into one")};
  if (!file || text.empty())
    throw InputError{message("there is no machine '", name_or_path, "', nor a file that can be ",
                             "read; the machines are ", known)};
  return parse_machine(text, name_or_path);
}

}  // namespace shardmark
