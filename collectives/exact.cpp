#include "collectives/exact.hpp"

#include "core/bf16.hpp"
#include "core/cpu/clones.hpp"
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
/// Values are made in blocks of this many, by loops without branches.
constexpr std::int64_t block_size = 1024;
using Block = std::array<std::int32_t, block_size>;

/// The random numbers of one member's elements.
struct Stream {
  std::uint32_t key;
  [[nodiscard]] std::uint32_t at(std::uint32_t element) const {
    return hash(element * 0x9E3779B1U + key);
  }
};

/// -limit to limit.
SHARDMARK_CLONES void fill_within(std::int32_t limit, Stream stream, std::uint32_t begin,
                                  std::uint32_t count, std::int32_t* out) {
  const auto span = static_cast<std::uint64_t>(2 * limit + 1);
  for (std::uint32_t i = 0; i < count; ++i)
    out[i] = static_cast<std::int32_t>(stream.at(begin + i) * span >> 32) - limit;
}

/// 1 or -1; 2 or -2 at the two members of `n` that `common` chooses.
SHARDMARK_CLONES void fill_factors(std::uint32_t member, std::uint32_t n, Stream own, Stream common,
                                   std::uint32_t begin, std::uint32_t count, std::int32_t* out) {
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t chosen = common.at(begin + i);
    const bool twice =
        (member == ((chosen & 0xFFFFU) * n >> 16)) | (member == ((chosen >> 16) * n >> 16));
    const std::int32_t size = twice ? 2 : 1;
    out[i] = (own.at(begin + i) & 1U) != 0 ? size : -size;
  }
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
  }

  /// A member's elements from `first` on. |values| summed over the members stay exact.
  void input(int member, std::int64_t first, std::int64_t count, Block& out) const {
    const Stream own = stream(member, first);
    if (reduces_ && reduction_ == Reduction::prod) return factors(member, first, count, out);
    if (reduces_ && reduction_ == Reduction::avg) return around_mean(member, first, count, out);
    spread(share_, own, first, count, out);
    if (reduces_ && reduction_ == Reduction::sum) keep_turns(member, first, count, out);
  }

  void reduced(std::int64_t first, std::int64_t count, Block& out) const {
    if (reduction_ == Reduction::avg) return means(first, count, out);
    input(0, first, count, out);
    Block other;
    const auto combine = [&](auto f) {
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
        out[i] = f(out[i], other[i]);
    };
    for (int member = 1; member < n_; ++member) {
      input(member, first, count, other);
      if (reduction_ == Reduction::sum) combine([](int a, int b) { return a + b; });
      if (reduction_ == Reduction::prod) combine([](int a, int b) { return a * b; });
      if (reduction_ == Reduction::max) combine([](int a, int b) { return std::max(a, b); });
      if (reduction_ == Reduction::min) combine([](int a, int b) { return std::min(a, b); });
    }
  }

 private:
  /// Elements of a block agree in what is above their lower 32 bits; see `pieces`.
  [[nodiscard]] Stream stream(int member, std::int64_t first) const {
    const auto high = static_cast<std::uint32_t>(static_cast<std::uint64_t>(first) >> 32);
    return {high * 0xC2B2AE3DU + static_cast<std::uint32_t>(member) * 0x85EBCA77U + seed_};
  }
  static void spread(std::int32_t limit, Stream stream, std::int64_t first, std::int64_t count,
                     Block& out) {
    fill_within(limit, stream, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(count),
                out.data());
  }
  void keep_turns(int turn, std::int64_t first, std::int64_t count, Block& values) const {
    if (turns_ == 1) return;
    for (std::int64_t i = 0; i < count; ++i)
      if ((first + i) % turns_ != turn % turns_) values[static_cast<std::size_t>(i)] = 0;
  }
  /// Products stay below 8.
  void factors(int member, std::int64_t first, std::int64_t count, Block& out) const {
    fill_factors(static_cast<std::uint32_t>(member), static_cast<std::uint32_t>(n_),
                 stream(member, first), stream(-1, first), static_cast<std::uint32_t>(first),
                 static_cast<std::uint32_t>(count), out.data());
  }
  void means(std::int64_t first, std::int64_t count, Block& out) const {
    spread(turns_ > 1 ? 0 : share_ / 2, stream(-1, first), first, count, out);
  }
  /// A mean that all members share, plus what neighbours (0 and 1, 2 and 3, ...) take back.
  void around_mean(int member, std::int64_t first, std::int64_t count, Block& out) const {
    means(first, count, out);
    const int pair = member / 2;
    if (pair * 2 + 1 == n_) return;
    Block away;
    spread(std::max(share_ - share_ / 2, 1), stream(pair, first), first, count, away);
    keep_turns(pair, first, count, away);
    const std::int32_t sign = member % 2 == 0 ? 1 : -1;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) out[i] += sign * away[i];
  }

  Reduction reduction_;
  bool reduces_;
  int n_, turns_{1};
  std::int32_t share_{1};
  std::uint32_t seed_;
};

/// Cuts [first, first + count) into blocks, also where the lower 32 bits of a number begin anew.
template <class Visit>
void pieces(std::int64_t first, std::int64_t count, const Visit& visit) {
  constexpr std::int64_t lap = std::int64_t{1} << 32;
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t at = first + done;
    const std::int64_t piece = std::min({block_size, count - done, lap - at % lap});
    visit(done, at, piece);
    done += piece;
  }
}

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

/// One dtype: how a value is stored, and read and compared as numbers that hold both.
template <class Element, class Number>
struct Plain {
  using Type = Element;
  static Type store(std::int32_t value) { return static_cast<Type>(value); }
  static Number load(Type stored) { return static_cast<Number>(stored); }
  static Number value(std::int32_t wanted) { return static_cast<Number>(wanted); }
};
struct StoredBf16 {
  using Type = std::uint16_t;
  static Type store(std::int32_t value) { return to_bf16(static_cast<float>(value)); }
  static float load(Type stored) { return to_float(stored); }
  static float value(std::int32_t wanted) { return static_cast<float>(wanted); }
};
struct StoredF16 {
  using Type = std::uint16_t;
  static Type store(std::int32_t value) { return to_f16(static_cast<float>(value)); }
  static float load(Type stored) { return from_f16(stored); }
  static float value(std::int32_t wanted) { return static_cast<float>(wanted); }
};

template <class Visit>
void with_storage(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::f32:
      return visit(Plain<float, float>{});
    case DType::f64:
      return visit(Plain<double, double>{});
    case DType::i32:
      return visit(Plain<std::int32_t, std::int32_t>{});
    case DType::i8:
      return visit(Plain<std::int8_t, std::int32_t>{});
    case DType::bf16:
      return visit(StoredBf16{});
    case DType::f16:
      return visit(StoredF16{});
  }
}

/// Calls visit(first output element, count, values) for all of `member`'s output.
template <class Visit>
void for_each_expected(const ExactData& data, int member, const Visit& visit) {
  const Values values{data};
  std::int64_t at = 0;
  Block block;
  for (const Origin& origin : origins(data, member)) {
    pieces(origin.first, origin.count, [&](std::int64_t done, std::int64_t first, std::int64_t n) {
      if (origin.member < 0)
        values.reduced(first, n, block);
      else
        values.input(origin.member, first, n, block);
      visit(at + done, n, block);
    });
    at += origin.count;
  }
}

template <class Storage>
void store(const Block& values, std::int64_t count, typename Storage::Type* to) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
    to[i] = Storage::store(values[i]);
}

template <class Storage>
bool equal(const Block& values, std::int64_t count, const typename Storage::Type* got) {
  int wrong = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
    wrong += Storage::load(got[i]) == Storage::value(values[i]) ? 0 : 1;
  return wrong == 0;
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
    using Kind = decltype(storage);
    auto* elements = static_cast<typename Kind::Type*>(to);
    Block block;
    pieces(first, count, [&](std::int64_t done, std::int64_t at, std::int64_t n) {
      values.input(member, at, n, block);
      store<Kind>(block, n, elements + done);
    });
  });
}

void fill_expected(const ExactData& data, int member, void* to) {
  with_storage(data.dtype, [&](auto storage) {
    using Kind = decltype(storage);
    auto* elements = static_cast<typename Kind::Type*>(to);
    for_each_expected(data, member, [&](std::int64_t at, std::int64_t count, const Block& block) {
      store<Kind>(block, count, elements + at);
    });
  });
}

ExactResult check_exact(const ExactData& data, int member, const void* got) {
  ExactResult result;
  with_storage(data.dtype, [&](auto storage) {
    using Kind = decltype(storage);
    const auto* elements = static_cast<const typename Kind::Type*>(got);
    for_each_expected(data, member, [&](std::int64_t at, std::int64_t count, const Block& block) {
      if (equal<Kind>(block, count, elements + at)) return;
      for (std::int64_t i = 0; i < count; ++i) {
        const auto is = static_cast<double>(Kind::load(elements[at + i]));
        const std::int32_t wanted = block[static_cast<std::size_t>(i)];
        if (is == static_cast<double>(wanted) || result.num_wrong++ > 0) continue;
        result.first_wrong = at + i;
        result.expected = wanted;
        result.got = is;
      }
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
