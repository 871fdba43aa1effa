#pragma once

#include <span>
#include <vector>

namespace shardmark::generators {

/// The members of a group by host, in order of first appearance; a member's place is its number
/// among those of its host.
class HostLayout {
 public:
  /// `host_of_member[i]` is any number that members of one host share.
  explicit HostLayout(std::span<const int> host_of_member);

  [[nodiscard]] int num_hosts() const { return static_cast<int>(members_.size()); }
  [[nodiscard]] int num_members() const { return static_cast<int>(host_of_.size()); }
  /// 0 if the hosts have different numbers of members.
  [[nodiscard]] int ranks_per_host() const { return ranks_per_host_; }
  [[nodiscard]] std::span<const int> members(int host) const { return members_[index(host)]; }
  [[nodiscard]] int member(int host, int place) const {
    return members_[index(host)][index(place)];
  }
  [[nodiscard]] int host_of(int member) const { return host_of_[index(member)]; }
  [[nodiscard]] int place_of(int member) const { return place_of_[index(member)]; }
  /// Those of one place on every host.
  [[nodiscard]] std::vector<int> peers(int place) const;
  /// Makes `member` the first of its host.
  void put_first(int member);

 private:
  [[nodiscard]] static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  std::vector<std::vector<int>> members_;
  std::vector<int> host_of_, place_of_;
  int ranks_per_host_{0};
};

}  // namespace shardmark::generators
