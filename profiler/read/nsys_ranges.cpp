#include "profiler/read/nsys_ranges.hpp"

#include "profiler/read/nsys_work.hpp"

#include <cctype>
#include <utility>

namespace shardmark::nsys {
namespace {

/// Event types of NVTX_EVENTS: a push and its pop, a start and its end. Others are marks and names.
constexpr std::int64_t push_pop = 59, start_end = 60;

constexpr std::string_view nccl_prefix = "nccl";

/// "ncclAllReduce", but not "nccl:all_reduce", which frameworks write.
bool is_nccl_call(std::string_view name) {
  return name.size() > nccl_prefix.size() && name.starts_with(nccl_prefix) &&
         std::isupper(static_cast<unsigned char>(name[nccl_prefix.size()])) != 0;
}

/// PyTorch's emit_nvtx writes every operator: "aten::mm, op_id = 12", "aten::mm, seq = 3".
bool is_operator(std::string_view name) {
  return name.find(", op_id = ") != std::string_view::npos ||
         name.find(", seq = ") != std::string_view::npos;
}

}  // namespace

Ranges read_ranges(Database& database, StringTable& strings, Names& names) {
  Ranges ranges;
  const PayloadSchemas schemas{database};
  const auto visit = [&](const Row& row) {
    const auto start = row.integer(0), end = row.integer(1);
    const std::int64_t thread = row.integer(5).value_or(0);
    ++ranges.num_rows[process_of(thread)];
    const std::int64_t type = row.integer(2).value_or(push_pop);
    if (!is_time(start) || (type != push_pop && type != start_end)) return;
    std::string_view name = row.bytes(3);
    std::uint32_t index = no_index;
    if (const auto id = row.integer(4); name.empty() && id) {
      index = strings.find(*id);
      if (index != no_index) name = names[index];
    }
    if (name.empty() || is_operator(name)) return;
    if (!is_time(end)) {
      ++ranges.num_open;
    } else if (is_nccl_call(name)) {
      std::string_view json = row.bytes(8);
      if (const auto id = row.integer(9); json.empty() && id)
        if (const std::uint32_t text = strings.find(*id); text != no_index) json = names[text];
      ranges.nccl.push_back({{*start, *end},
                             thread,
                             std::string{name.substr(nccl_prefix.size())},
                             schemas.decode(row.integer(6).value_or(0), row.bytes(7), json)});
    } else {
      if (index == no_index) index = names.add(name);
      ranges.annotations[process_of(thread)].push_back({{*start, *end}, index});
    }
  };
  database.scan(database.find_table({"NVTX_EVENTS"}),
                {"start", "end", "eventType", "text", "textId", "globalTid", "domainId",
                 "binaryData", "jsonText", "jsonTextId"},
                visit);
  return ranges;
}

}  // namespace shardmark::nsys
