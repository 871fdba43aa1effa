#include "collectives/collective.hpp"

#include "core/error.hpp"

#include <array>

namespace shardmark {
namespace {

struct Row {
  std::string_view name;
  CollectiveFacts facts;
};

// has_root, has_reduction, n blocks in, n blocks out
constexpr std::array<Row, num_collectives> rows{{
    {"all_reduce", {false, true, false, false}},
    {"all_gather", {false, false, false, true}},
    {"reduce_scatter", {false, true, true, false}},
    {"all_to_all", {false, false, true, true}},
    {"all_to_all_v", {false, false, true, true}},
    {"broadcast", {true, false, false, false}},
    {"reduce", {true, true, false, false}},
    {"gather", {true, false, false, true}},
    {"scatter", {true, false, true, false}},
    {"send_recv", {false, false, false, false}},
    {"barrier", {false, false, false, false}},
}};

const Row& row_of(Collective collective) { return rows[static_cast<std::size_t>(collective)]; }

std::string without_separators(std::string_view text) {
  std::string letters;
  for (const char c : text)
    if (c != '_' && c != '-')
      letters += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return letters;
}

}  // namespace

std::string_view name_of(Collective collective) { return row_of(collective).name; }

std::optional<Collective> parse_collective(std::string_view text) {
  const std::string wanted = without_separators(text);
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (without_separators(rows[i].name) == wanted) return static_cast<Collective>(i);
  return std::nullopt;
}

const CollectiveFacts& facts_of(Collective collective) { return row_of(collective).facts; }

double busbw_factor(Collective collective, int group_size) {
  const double n = group_size;
  switch (collective) {
    case Collective::all_reduce:
      return 2 * (n - 1) / n;
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
    case Collective::all_to_all_v:
    case Collective::gather:
    case Collective::scatter:
      return (n - 1) / n;
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::send_recv:
      return 1;
    case Collective::barrier:
      return 0;
  }
  return 0;
}

std::int64_t total_numel(Collective collective, int group_size, std::int64_t block_numel) {
  const CollectiveFacts& facts = facts_of(collective);
  if (collective == Collective::barrier) return 0;
  return facts.input_has_n_blocks || facts.output_has_n_blocks ? group_size * block_numel
                                                               : block_numel;
}

Op native_op(const Call& call) {
  const Group& group = call.group;
  switch (call.collective) {
    case Collective::all_reduce:
      return AllReduce{call.x, group, call.reduction, call.y};
    case Collective::all_gather:
      return AllGather{call.x, call.y, group};
    case Collective::reduce_scatter:
      return ReduceScatter{call.x, call.y, group, call.reduction};
    case Collective::all_to_all:
      return AllToAll{call.x, call.y, group};
    case Collective::all_to_all_v:
      return AllToAllV{call.x, call.y, group, call.counts};
    case Collective::broadcast:
      return Broadcast{call.x, call.y, group, call.root};
    case Collective::reduce:
      return Reduce{call.x, call.y, group, call.root, call.reduction};
    case Collective::gather:
      return Gather{call.x, call.y, group, call.root};
    case Collective::scatter:
      return Scatter{call.x, call.y, group, call.root};
    case Collective::send_recv:
      return SendRecv{call.x, call.y, group, (group.position + 1) % group.size,
                      (group.position + group.size - 1) % group.size};
    case Collective::barrier:
      return Barrier{group};
  }
  throw Error{message("no such collective: ", static_cast<int>(call.collective))};
}

}  // namespace shardmark
