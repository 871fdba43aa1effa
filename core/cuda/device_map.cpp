#include "core/cuda/device_map.hpp"

#include "core/cuda/nccl.hpp"
#include "core/error.hpp"
#include "core/host.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

namespace shardmark::cuda {
namespace {

constexpr int first_nccl_that_shares = 23000;

std::optional<int> number_in(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return {};
  return value;
}

/// "ranks 0, 2"
std::string list_of(const std::vector<std::size_t>& ranks) {
  std::string text = "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += message(i == 0 ? "" : ", ", ranks[i]);
  return text;
}

using Ranks = std::vector<std::size_t>;

/// The ranks of each machine, in rank order.
std::map<std::string, Ranks> by_machine(std::span<const RankPlace> ranks) {
  std::map<std::string, Ranks> machines;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    machines[ranks[rank].machine].push_back(rank);
  return machines;
}

/// A launcher's numbers for the ranks of a machine, if it gave each another one; else empty.
std::vector<int> numbers_of(std::span<const RankPlace> ranks, const Ranks& here,
                            const std::string& variable) {
  std::vector<int> numbers;
  for (const std::size_t rank : here)
    for (const auto& [name, value] : ranks[rank].launcher)
      if (const auto number = number_in(value); name == variable && number)
        numbers.push_back(*number);
  const std::set<int> different{numbers.begin(), numbers.end()};
  if (different.size() != here.size()) numbers.clear();
  return numbers;
}

/// Containers of a machine may have equal process numbers.
bool in_one_process(std::span<const RankPlace> ranks, const Ranks& some) {
  const RankPlace& first = ranks[some.front()];
  return std::ranges::all_of(some, [&](std::size_t rank) {
    return ranks[rank].pid == first.pid && ranks[rank].host == first.host;
  });
}

/// Places of a machine's ranks on it, and what is to be said about them.
std::vector<int> places_on(std::span<const RankPlace> ranks, const Ranks& here,
                           std::vector<DeviceChoice>& choices) {
  std::vector<int> in_order(here.size());
  for (std::size_t i = 0; i < here.size(); ++i) in_order[i] = static_cast<int>(i);
  if (here.size() > 1 && in_one_process(ranks, here)) return in_order;
  std::string ignored;
  for (const char* variable : launcher_variables()) {
    const std::vector<int> numbers = numbers_of(ranks, here, variable);
    const bool is_set = std::ranges::any_of(ranks[here.front()].launcher,
                                            [&](const auto& v) { return v.first == variable; });
    if (numbers.empty() && is_set) ignored = variable;
    if (numbers.empty()) continue;
    for (std::size_t i = 0; i < here.size(); ++i)
      if (numbers[i] != in_order[i])
        choices[here[i]].notices.push_back(message(
            "rank ", here[i], " has ", variable, '=', numbers[i], ", but is number ", in_order[i],
            " of the ranks on host ", ranks[here[i]].host, "; its GPU is chosen by ", variable));
    return numbers;
  }
  if (!ignored.empty() && here.size() > 1)
    choices[here.front()].notices.push_back(message(ignored, " does not tell the ranks on host ",
                                                    ranks[here.front()].host,
                                                    " apart; GPUs are chosen in rank order"));
  return in_order;
}

/// Why ranks cannot share a GPU with NCCL, or empty.
std::string why_not_shared(std::span<const RankPlace> ranks, const Ranks& sharing) {
  for (const std::size_t rank : sharing) {
    const RankPlace& place = ranks[rank];
    if (place.nccl_version < first_nccl_that_shares)
      return message("NCCL ", nccl_version_text(place.nccl_version),
                     " takes one rank for each GPU");
    if (!place.may_share)
      return message("NCCL ", nccl_version_text(place.nccl_version),
                     " takes several ranks on one only with NCCL_MULTI_RANK_GPU_ENABLE=1");
  }
  return {};
}

void check_sharing(std::span<const RankPlace> ranks, Path path, int asked,
                   std::vector<DeviceChoice>& choices) {
  std::map<std::pair<std::string, std::string>, Ranks> users;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    users[{ranks[rank].machine,
           ranks[rank].devices[static_cast<std::size_t>(choices[rank].device)]}]
        .push_back(rank);
  for (const auto& [device, sharing] : users) {
    if (sharing.size() == 1) continue;
    const RankPlace& first = ranks[sharing.front()];
    const std::string gpu = message("GPU ", device.second, " of host ", first.host);
    // A process has one pool of memory for each GPU.
    const std::string pools =
        in_one_process(ranks, sharing) ? "; each one's peak of memory is that of all" : "";
    if (path != Path::nccl) {
      choices[sharing.front()].notices.push_back(message(list_of(sharing), " share ", gpu, pools));
      continue;
    }
    const std::string why = why_not_shared(ranks, sharing);
    if (!why.empty())
      throw InputError{message(list_of(sharing), " would share ", gpu, ", and ", why,
                               " (their processes see ", first.devices.size(),
                               ", CUDA_VISIBLE_DEVICES ", first.visible_devices,
                               asked < 0 ? "" : message(", --device ", asked),
                               "); use --transport staged, or fewer ranks on a host")};
    choices[sharing.front()].notices.push_back(
        message(list_of(sharing), " share ", gpu,
                ", an experiment of NCCL: its figures are not those of two GPUs", pools));
  }
}

}  // namespace

std::span<const char* const> launcher_variables() {
  static constexpr std::array names{"MPI_LOCALRANKID",   "OMPI_COMM_WORLD_LOCAL_RANK",
                                    "SLURM_LOCALID",     "MV2_COMM_WORLD_LOCAL_RANK",
                                    "PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"};
  return names;
}

RankPlace place_of_this_process() {
  RankPlace place;
  place.host = host_name();
  // The same for all containers of a machine, whatever their names.
  if (!std::getline(std::ifstream{"/proc/sys/kernel/random/boot_id"}, place.machine))
    place.machine = place.host;
  place.pid = ::getpid();
  for (const char* name : launcher_variables())
    if (const char* value = std::getenv(name); value != nullptr)
      place.launcher.emplace_back(name, value);
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  place.visible_devices = visible == nullptr ? "(unset)" : visible;
  const char* const may_share = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  place.may_share = may_share != nullptr && std::string_view{may_share} == "1";
  return place;
}

std::vector<DeviceChoice> choose_devices(std::span<const RankPlace> ranks, Path path, int asked) {
  std::vector<DeviceChoice> choices(ranks.size());
  for (const auto& [machine, here] : by_machine(ranks)) {
    const std::vector<int> places = places_on(ranks, here, choices);
    for (std::size_t i = 0; i < here.size(); ++i) {
      const RankPlace& place = ranks[here[i]];
      const auto count = static_cast<int>(place.devices.size());
      if (count == 0)
        throw InputError{message("rank ", here[i], " (host ", place.host,
                                 ") sees no GPU (CUDA_VISIBLE_DEVICES=", place.visible_devices,
                                 ")")};
      if (asked >= count)
        throw InputError{message("--device ", asked, ": rank ", here[i], " (host ", place.host,
                                 ") sees ", count, " GPUs, counted from 0")};
      choices[here[i]].device = asked >= 0 ? asked : places[i] % count;
    }
  }
  if (asked >= 0)
    for (DeviceChoice& choice : choices) choice.notices.clear();
  check_sharing(ranks, path, asked, choices);
  return choices;
}

// One "key value" a line. Values come from variables and host names, which have no line breaks.
std::string to_text(const RankPlace& place) {
  std::string text = message("host ", place.host, "\nmachine ", place.machine, "\npid ", place.pid,
                             "\nvisible ", place.visible_devices, "\nnccl ", place.nccl_version,
                             "\nshare ", place.may_share ? 1 : 0, '\n');
  for (const auto& [name, value] : place.launcher) text += message(name, ' ', value, '\n');
  for (const std::string& device : place.devices) text += message("device ", device, '\n');
  return text;
}

RankPlace place_from(const std::string& text) {
  RankPlace place;
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t space = line.find(' ');
    const std::string key = line.substr(0, space);
    const std::string value = space == std::string::npos ? "" : line.substr(space + 1);
    if (key == "host")
      place.host = value;
    else if (key == "machine")
      place.machine = value;
    else if (key == "pid")
      place.pid = std::strtoll(value.c_str(), nullptr, 10);
    else if (key == "visible")
      place.visible_devices = value;
    else if (key == "nccl")
      place.nccl_version = number_in(value).value_or(0);
    else if (key == "share")
      place.may_share = value == "1";
    else if (key == "device")
      place.devices.push_back(value);
    else
      place.launcher.emplace_back(key, value);
  }
  return place;
}

std::vector<DeviceChoice> agree_on_devices(Transport& transport, const RankPlace& mine, Path path,
                                           int asked) {
  std::vector<RankPlace> places;
  for (const std::string& text : transport.gather(to_text(mine)))
    places.push_back(place_from(text));
  return choose_devices(places, path, asked);
}

void agree(Transport& transport, const std::string& missing) {
  const std::vector<std::string> all = transport.gather(missing);
  const auto first = std::ranges::find_if(all, [](const auto& text) { return !text.empty(); });
  if (first == all.end()) return;
  if (std::ranges::count(all, *first) == std::ssize(all)) throw InputError{*first};
  const auto rank = static_cast<std::size_t>(first - all.begin());
  throw InputError{
      message("rank ", rank, " (host ", transport.endpoints()[rank].host, "): ", *first)};
}

}  // namespace shardmark::cuda
