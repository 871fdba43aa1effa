#include "profiler/read/kineto_calls.hpp"

#include "core/error.hpp"
#include "profiler/read/json_scan.hpp"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

namespace shardmark {
namespace {

int small_integer_of(std::string_view value, int otherwise) {
  const auto number = integer_of(value);
  constexpr int most = std::numeric_limits<int>::max();
  return number && *number >= 0 && *number <= most ? static_cast<int>(*number) : otherwise;
}

/// "[0, 1, 2]", with or without quotes. PyTorch leaves out the middle of long lists ("...").
std::vector<int> ranks_of(std::string_view text) {
  std::vector<int> ranks;
  if (text.find("...") != std::string_view::npos) return ranks;
  JsonItems items{unquoted(text)};
  std::string_view key, value;
  while (items.next(key, value)) {
    const int rank = small_integer_of(value, -1);
    if (rank < 0) return {};
    ranks.push_back(rank);
  }
  return ranks;
}

/// Ranks of a group in arithmetic progression.
std::vector<int> ranks_between(std::string_view first, std::string_view stride, int size) {
  constexpr int most_ranks = 1 << 17;
  const int start = small_integer_of(first, -1), step = small_integer_of(stride, -1);
  std::vector<int> ranks;
  if (start < 0 || start > most_ranks || step < 1 || step > most_ranks || size > most_ranks)
    return ranks;
  if (std::int64_t{start} + std::int64_t{step} * size > std::numeric_limits<int>::max())
    return ranks;
  for (int i = 0; i < size; ++i) ranks.push_back(start + i * step);
  return ranks;
}

/// Elements of the first tensor in "[[2, 1024, 34820]]", or -1.
std::int64_t elements_of(std::string_view dims) {
  constexpr std::int64_t most = std::int64_t{1} << 50;
  const std::size_t end = dims.find(']');
  if (end == std::string_view::npos) return -1;
  const std::size_t begin = dims.rfind('[', end);
  if (begin == std::string_view::npos) return -1;
  std::int64_t product = 1, num_dims = 0;
  JsonItems items{dims.substr(begin, end - begin + 1)};
  for (std::string_view key, value; items.next(key, value); ++num_dims) {
    const auto extent = integer_of(value);
    if (!extent || *extent < 0 || *extent > most) return -1;
    product *= *extent;
    if (product > most) return -1;
  }
  return num_dims > 0 ? product : -1;
}

constexpr auto by_thread = [](const KinetoCalls::HostCall& call) {
  return std::tuple{call.thread, call.time.start_ns};
};

std::string first_text(std::string_view array) {
  std::string_view key, value;
  return JsonItems{array}.next(key, value) ? text_of(value) : std::string{};
}

}  // namespace

std::uint32_t KinetoCalls::add(const KinetoArgs& args) {
  // Waiting for a collective is none.
  const std::string_view kind = unquoted(args.collective);
  if (kind.empty() || kind == "wait") return no_index;
  CommunicationCall call;
  call.kind = text_of(args.collective);
  call.dtype = text_of(args.dtype);
  call.group = group_of(args);
  call.elements_in = std::max<std::int64_t>(-1, integer_of(args.elements_in).value_or(-1));
  call.elements_out = std::max<std::int64_t>(-1, integer_of(args.elements_out).value_or(-1));
  call.sequence = integer_of(args.sequence).value_or(-1);
  call.peer = small_integer_of(args.destination, small_integer_of(args.source, -1));
  if (call.kind.find("recv") != std::string::npos)
    call.peer = small_integer_of(args.source, call.peer);
  return add_call(std::move(call));
}

void KinetoCalls::add_parameters(const KinetoArgs& args, std::uint32_t thread, const Span& time) {
  const std::uint32_t call = add(args);
  if (call == no_index) return;
  described_.push_back({thread, time, call});
  if (const auto id = id_of(args.external_id)) call_of_external_.insert_or_assign(*id, call);
}

void KinetoCalls::add_annotation(const std::string& name, const KinetoArgs& args,
                                 std::uint32_t thread, const Span& time) {
  const std::size_t colon = name.find(':');
  if (colon == std::string::npos || !std::string_view{name}.substr(0, colon).ends_with("ccl"))
    return;
  CommunicationCall call;
  // "nccl:send 0->1": the peer comes last.
  const std::size_t space = std::min(name.find(' ', colon), name.size());
  call.kind = name.substr(colon + 1, space - colon - 1);
  const std::size_t before_peer = name.find_last_not_of("0123456789");
  if (space < name.size() && before_peer != std::string::npos)
    call.peer = small_integer_of(std::string_view{name}.substr(before_peer + 1), -1);
  call.dtype = first_text(args.input_type);
  call.elements_in = elements_of(args.input_dims);
  annotated_.push_back({thread, time, add_call(std::move(call))});
}

void KinetoCalls::add_group_config(std::string_view json) {
  JsonItems groups{json};
  for (std::string_view no_key, object; groups.next(no_key, object);) {
    ProcessGroup group;
    JsonItems members{object};
    for (std::string_view key, value; members.next(key, value);) {
      if (key == "pg_name") group.name = text_of(value);
      if (key == "pg_desc") group.description = text_of(value);
      if (key == "pg_size") group.size = small_integer_of(value, 0);
      if (key == "ranks") group.ranks = ranks_of(value);
    }
    if (!group.name.empty()) add_group(std::move(group));
  }
}

void KinetoCalls::sort() {
  std::ranges::sort(described_, {}, by_thread);
  std::ranges::sort(annotated_, {}, by_thread);
}

std::uint32_t KinetoCalls::find(std::uint64_t external_id) const {
  const auto found = call_of_external_.find(external_id);
  return found == call_of_external_.end() ? no_index : found->second;
}

const KinetoCalls::HostCall* KinetoCalls::find_at(std::uint32_t thread,
                                                  std::int64_t launch_ns) const {
  for (const std::vector<HostCall>* sorted : {&described_, &annotated_}) {
    // The one that began last before the launch, if it was still going on.
    const auto behind =
        std::ranges::upper_bound(*sorted, std::tuple{thread, launch_ns}, {}, by_thread);
    if (behind == sorted->begin()) continue;
    const HostCall& last = *std::prev(behind);
    if (last.thread == thread && launch_ns <= last.time.end_ns) return &last;
  }
  return nullptr;
}

std::uint32_t KinetoCalls::group_of(const KinetoArgs& args) {
  ProcessGroup group;
  group.name = text_of(args.group_name);
  group.description = text_of(args.group_description);
  group.ranks = ranks_of(args.group_ranks);
  group.size = small_integer_of(args.group_size, 0);
  if (group.size == 0) group.size = static_cast<int>(group.ranks.size());
  if (group.ranks.empty())
    group.ranks = ranks_between(args.first_rank, args.rank_stride, group.size);
  const bool says_anything = !group.name.empty() || !group.ranks.empty() || group.size > 0;
  return says_anything ? add_group(std::move(group)) : no_index;
}

/// Within one file a group has one name; what one event leaves out another may say.
std::uint32_t KinetoCalls::add_group(ProcessGroup group) {
  std::string key = group.name;
  if (key.empty()) {
    key = message("without name, size ", group.size, ":");
    for (const int rank : group.ranks) key += message(' ', rank);
  }
  const auto [known, is_new] =
      group_of_key_.emplace(std::move(key), static_cast<std::uint32_t>(groups_.size()));
  if (is_new) {
    groups_.push_back(std::move(group));
    return known->second;
  }
  ProcessGroup& first = groups_[known->second];
  if (first.description.empty()) first.description = std::move(group.description);
  if (first.ranks.empty()) first.ranks = std::move(group.ranks);
  if (first.size == 0) first.size = group.size;
  return known->second;
}

std::uint32_t KinetoCalls::add_call(CommunicationCall call) {
  std::string key = message(call.kind, '\n', call.dtype, '\n', call.group, ' ', call.elements_in,
                            ' ', call.elements_out, ' ', call.sequence, ' ', call.peer);
  const auto [known, is_new] =
      call_of_key_.emplace(std::move(key), static_cast<std::uint32_t>(calls_.size()));
  if (is_new) calls_.push_back(std::move(call));
  return known->second;
}

}  // namespace shardmark
