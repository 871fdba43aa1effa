#include "collectives/hosts_internal.hpp"

#include <algorithm>
#include <map>

namespace shardmark::generators {

HostLayout::HostLayout(std::span<const int> host_of_member) {
  std::map<int, int> number_of;
  for (std::size_t i = 0; i < host_of_member.size(); ++i) {
    const auto [found, is_new] = number_of.try_emplace(host_of_member[i], num_hosts());
    if (is_new) members_.emplace_back();
    std::vector<int>& members = members_[index(found->second)];
    host_of_.push_back(found->second);
    place_of_.push_back(static_cast<int>(members.size()));
    members.push_back(static_cast<int>(i));
  }
  const auto equal = [&](const std::vector<int>& m) { return m.size() == members_[0].size(); };
  if (!members_.empty() && std::ranges::all_of(members_, equal))
    ranks_per_host_ = static_cast<int>(members_[0].size());
}

std::vector<int> HostLayout::peers(int place) const {
  std::vector<int> peers;
  for (int host = 0; host < num_hosts(); ++host) peers.push_back(member(host, place));
  return peers;
}

void HostLayout::put_first(int member) {
  std::vector<int>& members = members_[index(host_of(member))];
  const int place = place_of(member);
  std::swap(members.front(), members[index(place)]);
  place_of_[index(members[index(place)])] = place;
  place_of_[index(member)] = 0;
}

}  // namespace shardmark::generators
