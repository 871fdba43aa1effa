#include "bench/analyze/collectives.hpp"
#include "collectives/collective.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

namespace shardmark::bench {
namespace {

/// "EXPERT_DATA_PARALLEL_GROUP" -> expert, data, parallel, group.
std::set<std::string> words_of(std::string_view text) {
  std::set<std::string> words;
  std::string word;
  for (const char letter : std::string{text} + ' ') {
    const char c = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      word += c;
    else
      words.insert(std::exchange(word, {}));
  }
  return words;
}

/// The axis that words name; empty if they name none or several.
std::string axis_in(std::string_view text) {
  static const std::map<std::string, std::string> axes{
      {"tp", "tp"},   {"tensor", "tp"}, {"pp", "pp"},  {"pipeline", "pp"}, {"pipe", "pp"},
      {"dp", "dp"},   {"data", "dp"},   {"ddp", "dp"}, {"fsdp", "dp"},     {"hsdp", "dp"},
      {"zero", "dp"}, {"cp", "cp"},     {"ep", "ep"},  {"context", "cp"},  {"ulysses", "cp"}};
  std::set<std::string> found;
  bool has_experts = false;
  for (const std::string& word : words_of(text)) {
    if (const auto axis = axes.find(word); axis != axes.end()) found.insert(axis->second);
    has_experts = has_experts || word == "expert" || word == "moe";
  }
  // Data parallelism spans the ranks that share a sequence too: their gradients add up.
  if (found == std::set<std::string>{"cp", "dp"}) return "dp";
  // EXPERT_DATA_PARALLEL_GROUP holds replicas of experts; EXPERT_MODEL_PARALLEL_GROUP different
  // ones.
  if (found.empty() && has_experts) return "ep";
  return found.size() == 1 ? *found.begin() : std::string{};
}

/// What the distance of the ranks tells, see purpose_of.
std::string axis_by_distance(const std::vector<int>& ranks, int world_size, bool has_messages) {
  if (ranks.size() < 2 || world_size <= static_cast<int>(ranks.size())) return "?";
  const int step = ranks[1] - ranks[0];
  for (std::size_t i = 1; i < ranks.size(); ++i)
    if (ranks[i] - ranks[i - 1] != step || step < 1) return "?";
  if (step == 1) return has_messages ? "?" : "tp";
  return has_messages ? "pp" : "dp";
}

}  // namespace

std::string purpose_of(const ProcessGroup& group, int world_size,
                       const std::map<std::string, std::string>& axis_of, std::string_view kind) {
  for (const std::string& word : {group.name, group.description, label_of(group)})
    if (const auto told = axis_of.find(word); told != axis_of.end()) return told->second;
  for (const std::string& word : {group.description, group.name})
    if (std::string axis = axis_in(word); !axis.empty()) return axis;
  // The world's group of PyTorch, which DDP and FSDP use unless they are told otherwise.
  if (group.description == "default_pg") return is_message(kind) ? "?" : "dp";
  return axis_by_distance(group.ranks, world_size, is_message(kind));
}

std::string label_of(const ProcessGroup& group) {
  if (!group.name.empty()) return group.name;
  if (!group.description.empty()) return group.description;
  constexpr std::size_t num_shown = 8;
  std::string ranks;
  for (std::size_t i = 0; i < std::min(group.ranks.size(), num_shown); ++i)
    ranks += message(i == 0 ? "[" : ",", group.ranks[i]);
  if (group.ranks.size() > num_shown) ranks += message(",...,", group.ranks.back());
  return ranks.empty() ? ranks : ranks + ']';
}

int size_of(const ProcessGroup& group) {
  return group.size > 0 ? group.size : static_cast<int>(group.ranks.size());
}

bool is_message(std::string_view kind) {
  return kind == "send" || kind == "recv" || kind == "send_recv";
}

bool joins_all(std::string_view kind) {
  const std::optional<Collective> known = parse_collective(kind);
  if (!known) return false;
  switch (*known) {
    case Collective::all_reduce:
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
    case Collective::all_to_all_v:
    case Collective::barrier:
      return true;
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::gather:
    case Collective::scatter:
    case Collective::send_recv:
      return false;
  }
  return false;
}

}  // namespace shardmark::bench
