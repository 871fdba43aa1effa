#include "collectives/exact.hpp"

#include "core/bf16.hpp"
#include "core/error.hpp"
#include "core/f16.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace shardmark {
namespace {

/// Integers up to this are exact in the dtype, and no larger than 2^24.
std::int32_t largest_exact(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return 256;
    case DType::f16:
      return 2048;
    case DType::i8:
      return 127;
    case DType::f32:
    case DType::f64:
    case DType::i32:
      break;
  }
  return 1 << 24;
}

std::uint32_t hash(std::uint32_t x) {
  x ^= x >> 15;
  x *= 0x2C1B3C6DU;
  x ^= x >> 12;
  x *= 0x297A2D39U;
  return x ^ (x >> 15);
}

/// The values of one ExactData.
class Values {
 public:
  explicit Values(const ExactData& data)
      : reduction_{data.reduction},
        reduces_{facts_of(data.collective).has_reduction},
        n_{data.group_size},
        seed_{hash(data.seed * 0x9E3779B1U + 1U)} {
    const std::int32_t most = largest_exact(data.dtype);
    const bool adds = reduces_ && (reduction_ == Reduction::sum || reduction_ == Reduction::avg);
    share_ = adds ? most / n_ : most;
    // Where there are more members than values, members take turns.
    turns_ = share_ > 0 ? 1 : n_ / most + 1;
    share_ = std::max(share_, 1);
    sparse_ = turns_ > 1;
  }

  /// One value; |value| summed over the members stays exact.
  [[nodiscard]] std::int32_t input(int member, std::int64_t element) const {
    if (!reduces_) return within(share_, mixed(member, element));
    switch (reduction_) {
      case Reduction::prod:
        return factor(member, element);
      case Reduction::avg:
        return around_mean(member, element);
      case Reduction::sum:
        if (sparse_ && !has_turn(member, element)) return 0;
        break;
      case Reduction::max:
      case Reduction::min:
        break;
    }
    return within(share_, mixed(member, element));
  }

  [[nodiscard]] std::int32_t reduced(std::int64_t element) const {
    std::int32_t result = input(0, element);
    for (int member = 1; member < n_; ++member) {
      const std::int32_t value = input(member, element);
      switch (reduction_) {
        case Reduction::sum:
        case Reduction::avg:
          result += value;
          break;
        case Reduction::prod:
          result *= value;
          break;
        case Reduction::max:
          result = std::max(result, value);
          break;
        case Reduction::min:
          result = std::min(result, value);
          break;
      }
    }
    return reduction_ == Reduction::avg ? result / n_ : result;
  }

 private:
  [[nodiscard]] std::uint32_t mixed(int member, std::int64_t element) const {
    const auto e = static_cast<std::uint64_t>(element);
    const auto low = static_cast<std::uint32_t>(e) * 0x9E3779B1U;
    const auto high = static_cast<std::uint32_t>(e >> 32) * 0xC2B2AE3DU;
    return hash(low + high + static_cast<std::uint32_t>(member) * 0x85EBCA77U + seed_);
  }
  /// -limit to limit.
  [[nodiscard]] static std::int32_t within(std::int32_t limit, std::uint32_t random) {
    const auto span = static_cast<std::uint64_t>(2 * limit + 1);
    return static_cast<std::int32_t>(random * span >> 32) - limit;
  }
  [[nodiscard]] bool has_turn(int member, std::int64_t element) const {
    return member % turns_ == static_cast<int>(element % turns_);
  }
  /// 1 or -1, at two of the members 2 or -2: products stay below 8.
  [[nodiscard]] std::int32_t factor(int member, std::int64_t element) const {
    const std::uint32_t chosen = mixed(-1, element);
    const auto n = static_cast<std::uint32_t>(n_);
    const auto m = static_cast<std::uint32_t>(member);
    const std::int32_t size = m == chosen % n || m == (chosen >> 16) % n ? 2 : 1;
    return (mixed(member, element) & 1U) != 0 ? size : -size;
  }
  /// A mean that all members share, plus what neighbours (0 and 1, 2 and 3, ...) take back.
  [[nodiscard]] std::int32_t around_mean(int member, std::int64_t element) const {
    const std::int32_t mean = sparse_ ? 0 : within(share_ / 2, mixed(-1, element));
    const int pair = member / 2;
    if (pair * 2 + 1 == n_ || (sparse_ && !has_turn(pair, element))) return mean;
    const std::int32_t limit = std::max(share_ - share_ / 2, 1);
    const std::int32_t away = within(limit, mixed(pair, element));
    return member % 2 == 0 ? mean + away : mean - away;
  }

  Reduction reduction_;
  bool reduces_, sparse_{false};
  int n_, turns_{1};
  std::int32_t share_{1};
  std::uint32_t seed_;
};

/// Consecutive output elements that come from consecutive input elements: of one member, or (-1)
/// reduced over all.
struct Origin {
  int member;
  std::int64_t first, count;
};

std::int64_t sum_of_counts(const ExactData& data, int member, bool sent, int below) {
  const auto n = static_cast<std::size_t>(data.group_size);
  std::int64_t sum = 0;
  for (std::size_t peer = 0; peer < static_cast<std::size_t>(below); ++peer)
    sum += sent ? data.counts[static_cast<std::size_t>(member) * n + peer]
                : data.counts[peer * n + static_cast<std::size_t>(member)];
  return sum;
}

std::vector<Origin> origins(const ExactData& data, int member) {
  const std::int64_t block = data.block_numel;
  const int n = data.group_size;
  std::vector<Origin> origins;
  switch (data.collective) {
    case Collective::all_reduce:
      return {{-1, 0, block}};
    case Collective::reduce:
      if (member == data.root) return {{-1, 0, block}};
      return {};
    case Collective::reduce_scatter:
      return {{-1, member * block, block}};
    case Collective::broadcast:
      return {{data.root, 0, block}};
    case Collective::scatter:
      return {{data.root, member * block, block}};
    case Collective::send_recv:
      return {{(member + n - 1) % n, 0, block}};
    case Collective::barrier:
      return {};
    case Collective::gather:
      if (member != data.root) return {};
      [[fallthrough]];
    case Collective::all_gather:
      for (int peer = 0; peer < n; ++peer) origins.push_back({peer, 0, block});
      return origins;
    case Collective::all_to_all:
      for (int peer = 0; peer < n; ++peer) origins.push_back({peer, member * block, block});
      return origins;
    case Collective::all_to_all_v:
      for (int peer = 0; peer < n; ++peer) {
        const std::int64_t first = sum_of_counts(data, peer, true, member);
        origins.push_back({peer, first, sum_of_counts(data, peer, true, member + 1) - first});
      }
      return origins;
  }
  return origins;
}

/// One dtype: how a value is stored and read.
template <DType dtype>
struct Storage;
template <>
struct Storage<DType::f32> {
  using Type = float;
  static Type store(std::int32_t value) { return static_cast<float>(value); }
  static double load(Type stored) { return static_cast<double>(stored); }
};
template <>
struct Storage<DType::f64> {
  using Type = double;
  static Type store(std::int32_t value) { return value; }
  static double load(Type stored) { return stored; }
};
template <>
struct Storage<DType::i32> {
  using Type = std::int32_t;
  static Type store(std::int32_t value) { return value; }
  static double load(Type stored) { return stored; }
};
template <>
struct Storage<DType::i8> {
  using Type = std::int8_t;
  static Type store(std::int32_t value) { return static_cast<std::int8_t>(value); }
  static double load(Type stored) { return stored; }
};
template <>
struct Storage<DType::bf16> {
  using Type = std::uint16_t;
  static Type store(std::int32_t value) { return to_bf16(static_cast<float>(value)); }
  static double load(Type stored) { return static_cast<double>(to_float(stored)); }
};
template <>
struct Storage<DType::f16> {
  using Type = std::uint16_t;
  static Type store(std::int32_t value) { return to_f16(static_cast<float>(value)); }
  static double load(Type stored) { return static_cast<double>(from_f16(stored)); }
};

template <class Visit>
void with_storage(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::f32:
      return visit(Storage<DType::f32>{});
    case DType::f64:
      return visit(Storage<DType::f64>{});
    case DType::i32:
      return visit(Storage<DType::i32>{});
    case DType::i8:
      return visit(Storage<DType::i8>{});
    case DType::bf16:
      return visit(Storage<DType::bf16>{});
    case DType::f16:
      return visit(Storage<DType::f16>{});
  }
}

/// Calls visit(output element, value) for all of `member`'s output.
template <class Visit>
void for_each_expected(const ExactData& data, int member, const Visit& visit) {
  const Values values{data};
  std::int64_t at = 0;
  for (const Origin& origin : origins(data, member)) {
    for (std::int64_t i = 0; i < origin.count; ++i)
      visit(at + i, origin.member < 0 ? values.reduced(origin.first + i)
                                      : values.input(origin.member, origin.first + i));
    at += origin.count;
  }
}

}  // namespace

std::int64_t ExactData::input_numel(int member) const {
  if (collective == Collective::barrier) return 0;
  if (collective == Collective::all_to_all_v) return sum_of_counts(*this, member, true, group_size);
  if ((collective == Collective::broadcast || collective == Collective::scatter) && member != root)
    return 0;
  return facts_of(collective).input_has_n_blocks ? group_size * block_numel : block_numel;
}

std::int64_t ExactData::output_numel(int member) const {
  if (collective == Collective::barrier) return 0;
  if (collective == Collective::all_to_all_v)
    return sum_of_counts(*this, member, false, group_size);
  if ((collective == Collective::reduce || collective == Collective::gather) && member != root)
    return 0;
  return facts_of(collective).output_has_n_blocks ? group_size * block_numel : block_numel;
}

void fill_exact(const ExactData& data, int member, std::int64_t first, std::int64_t count,
                void* to) {
  const Values values{data};
  with_storage(data.dtype, [&](auto storage) {
    auto* elements = static_cast<typename decltype(storage)::Type*>(to);
    for (std::int64_t i = 0; i < count; ++i)
      elements[i] = storage.store(values.input(member, first + i));
  });
}

void fill_expected(const ExactData& data, int member, void* to) {
  with_storage(data.dtype, [&](auto storage) {
    auto* elements = static_cast<typename decltype(storage)::Type*>(to);
    for_each_expected(data, member, [&](std::int64_t i, std::int32_t value) {
      elements[i] = storage.store(value);
    });
  });
}

ExactResult check_exact(const ExactData& data, int member, const void* got) {
  ExactResult result;
  with_storage(data.dtype, [&](auto storage) {
    const auto* elements = static_cast<const typename decltype(storage)::Type*>(got);
    for_each_expected(data, member, [&](std::int64_t i, std::int32_t value) {
      const double is = storage.load(elements[i]);
      if (is == static_cast<double>(value)) return;
      if (result.num_wrong++ > 0) return;
      result.first_wrong = i;
      result.expected = value;
      result.got = is;
    });
  });
  return result;
}

std::string ExactResult::to_string(std::int64_t numel) const {
  if (num_wrong == 0) return {};
  return message(num_wrong, " of ", numel, " elements are wrong, the first at ", first_wrong,
                 ": expected ", expected, ", got ", got);
}

}  // namespace shardmark
