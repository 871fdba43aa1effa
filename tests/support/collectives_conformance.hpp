#pragma once

// Every collective on every dtype, with every reduction and root, in place and out of place.

#include "core/error.hpp"
#include "tests/support/collective_data.hpp"

#include <chrono>
#include <thread>

namespace shardmark::conformance {

/// One way to call a collective.
struct Variant {
  DType dtype{DType::f32};
  std::int64_t numel{0};  ///< of a block
  bool in_place{false};
  int root{0};
  Reduction reduction{Reduction::sum};

  [[nodiscard]] std::string to_string(std::string_view op) const {
    return message(op, ' ', name_of(reduction), " of ", numel, " x ", name_of(dtype),
                   in_place ? " in place" : "", ", root ", root);
  }
};

template <class Run>
void for_all_types(std::span<const std::int64_t> numels, const Run& run) {
  for (const DType dtype : dtypes)
    for (const std::int64_t numel : numels)
      for (const bool in_place : {false, true}) run(Variant{dtype, numel, in_place});
}
template <class Run>
void for_all_reductions(std::span<const std::int64_t> numels, const Run& run) {
  for_all_types(numels, [&](Variant v) {
    for (v.reduction = Reduction::sum; v.reduction <= Reduction::avg;
         v.reduction = static_cast<Reduction>(static_cast<int>(v.reduction) + 1))
      run(v);
  });
}
template <class Run>
void for_all_roots(const Group& group, const Run& run) {
  for_all_types(few_sizes, [&](Variant v) {
    for (v.root = 0; v.root < group.size; ++v.root) run(v);
  });
}

inline void check_all_reduce(Transport& transport, const Group& group, Lane lane,
                             const Variant& v) {
  Data x{v.dtype, v.numel};
  Data y{v.dtype, v.numel};
  const auto mine = [&](std::int64_t i) { return value_at(v.reduction, transport.rank(), i); };
  x.fill(mine);
  communicate(transport,
              v.in_place ? AllReduce{x.tensor(), group, v.reduction}
                         : AllReduce{x.tensor(), group, v.reduction, y.tensor()},
              lane);
  const std::string what = v.to_string("all_reduce");
  (v.in_place ? x : y).expect(transport, what, [&](std::int64_t i) {
    return reduced(v.dtype, v.reduction, group, i);
  });
  if (!v.in_place) x.expect(transport, "the input of " + what, mine);
}

inline void all_reduce_is_exact(Transport& transport) {
  const Group group = connected_world(transport);
  for_all_reductions(sizes,
                     [&](const Variant& v) { check_all_reduce(transport, group, Lane::tp, v); });
}

/// Odd sizes over several pieces, and large enough that results are streamed past the caches.
inline void all_reduce_of_odd_millions(Transport& transport) {
  const Group group = connected_world(transport);
  for (const bool in_place : {false, true}) {
    check_all_reduce(transport, group, Lane::tp, {DType::f32, 5000003, in_place});
    check_all_reduce(transport, group, Lane::tp,
                     {DType::bf16, 3000001, in_place, 0, Reduction::avg});
  }
}

inline void all_gather_is_exact(Transport& transport) {
  const Group group = connected_world(transport);
  for_all_types(sizes, [&](const Variant& v) {
    Data x{v.dtype, v.numel};
    Data y{v.dtype, v.numel * group.size};
    const auto mine = [&](std::int64_t i) { return value_at(transport.rank(), i); };
    const Tensor own = y.block(group.position, v.numel);
    x.fill(mine);
    if (v.in_place)
      std::memcpy(own.data, x.tensor().data, static_cast<std::size_t>(x.tensor().bytes()));
    communicate(transport, AllGather{v.in_place ? own : x.tensor(), y.tensor(), group}, Lane::tp);
    y.expect(transport, v.to_string("all_gather"),
             [&](std::int64_t i) { return value_at(static_cast<int>(i / v.numel), i % v.numel); });
    x.expect(transport, "the input of " + v.to_string("all_gather"), mine);
  });
}

inline void reduce_scatter_is_exact(Transport& transport) {
  const Group group = connected_world(transport);
  for_all_reductions(few_sizes, [&](const Variant& v) {
    Data x{v.dtype, v.numel * group.size};
    Data y{v.dtype, v.numel};
    const auto mine = [&](std::int64_t i) { return value_at(v.reduction, transport.rank(), i); };
    const std::int64_t first = group.position * v.numel;
    const auto expected = [&](std::int64_t i) {
      return reduced(v.dtype, v.reduction, group, first + i);
    };
    x.fill(mine);
    const Tensor own = x.block(group.position, v.numel);
    communicate(transport,
                ReduceScatter{x.tensor(), v.in_place ? own : y.tensor(), group, v.reduction},
                Lane::tp);
    const std::string what = v.to_string("reduce_scatter");
    if (v.in_place) return x.expect_part(transport, what, first, v.numel, expected);
    y.expect(transport, what, expected);
    x.expect(transport, "the input of " + what, mine);
  });
}

/// What member `from` has for member `to`.
inline double value_for(int from, int to, std::int64_t element) {
  return value_at(from * 3 + to, element);
}

inline void all_to_all_is_exact(Transport& transport) {
  const Group group = connected_world(transport);
  for_all_types(few_sizes, [&](const Variant& v) {
    if (v.in_place) return;
    Data x{v.dtype, v.numel * group.size};
    Data y{v.dtype, v.numel * group.size};
    x.fill([&](std::int64_t i) {
      return value_for(group.position, static_cast<int>(i / v.numel), i % v.numel);
    });
    communicate(transport, AllToAll{x.tensor(), y.tensor(), group}, Lane::tp);
    y.expect(transport, v.to_string("all_to_all"), [&](std::int64_t i) {
      return value_for(static_cast<int>(i / v.numel), group.position, i % v.numel);
    });
  });
}

/// Blocks of uneven length, many of them empty; also nothing at all.
inline void all_to_all_v_is_exact(Transport& transport) {
  const Group group = connected_world(transport);
  const int n = group.size;
  for (const DType dtype : dtypes)
    for (const std::int64_t scale : {0, 1, 211}) {
      std::vector<std::int64_t> counts;
      for (int from = 0; from < n; ++from)
        for (int to = 0; to < n; ++to) counts.push_back((from * 5 + to * 3) % 4 * scale);
      const auto count = [&](int from, int to) {
        return counts[static_cast<std::size_t>(from * n + to)];
      };
      std::vector<double> sent, expected;
      for (int peer = 0; peer < n; ++peer) {
        for (std::int64_t i = 0; i < count(group.position, peer); ++i)
          sent.push_back(value_for(group.position, peer, i));
        for (std::int64_t i = 0; i < count(peer, group.position); ++i)
          expected.push_back(value_for(peer, group.position, i));
      }
      Data x{dtype, static_cast<std::int64_t>(sent.size())};
      Data y{dtype, static_cast<std::int64_t>(expected.size())};
      x.fill([&](std::int64_t i) { return sent[static_cast<std::size_t>(i)]; });
      communicate(transport, AllToAllV{x.tensor(), y.tensor(), group, counts}, Lane::tp);
      y.expect(transport, message("all_to_all_v of ", name_of(dtype), ", scale ", scale),
               [&](std::int64_t i) { return expected[static_cast<std::size_t>(i)]; });
    }
}

inline void broadcast_is_exact(Transport& transport) {
  const Group group = connected_world(transport);
  for_all_roots(group, [&](const Variant& v) {
    Data x{v.dtype, v.numel};
    Data y{v.dtype, v.numel};
    const bool is_root = group.position == v.root;
    const auto roots = [&](std::int64_t i) { return value_at(v.root, i); };
    if (is_root) (v.in_place ? y : x).fill(roots);
    const Tensor source = v.in_place ? y.tensor() : is_root ? x.tensor() : Tensor{};
    communicate(transport, Broadcast{source, y.tensor(), group, v.root}, Lane::tp);
    y.expect(transport, v.to_string("broadcast"), roots);
  });
}

inline void reduce_is_exact(Transport& transport) {
  const Group group = connected_world(transport);
  for_all_roots(group, [&](Variant v) {
    for (const Reduction reduction : reductions) {
      v.reduction = reduction;
      Data x{v.dtype, v.numel};
      Data y{v.dtype, v.numel};
      const bool is_root = group.position == v.root;
      const auto mine = [&](std::int64_t i) { return value_at(reduction, transport.rank(), i); };
      x.fill(mine);
      const Tensor target = !is_root ? Tensor{} : v.in_place ? x.tensor() : y.tensor();
      communicate(transport, Reduce{x.tensor(), target, group, v.root, reduction}, Lane::tp);
      const std::string what = v.to_string("reduce");
      if (is_root)
        (v.in_place ? x : y).expect(transport, what, [&](std::int64_t i) {
          return reduced(v.dtype, reduction, group, i);
        });
      if (!is_root || !v.in_place) x.expect(transport, "the input of " + what, mine);
    }
  });
}

inline void gather_is_exact(Transport& transport) {
  const Group group = connected_world(transport);
  for_all_roots(group, [&](const Variant& v) {
    const bool is_root = group.position == v.root;
    Data x{v.dtype, v.numel};
    Data y{v.dtype, is_root ? v.numel * group.size : 0};
    x.fill([&](std::int64_t i) { return value_at(transport.rank(), i); });
    Tensor source = x.tensor();
    if (is_root && v.in_place) {
      source = y.block(v.root, v.numel);
      std::memcpy(source.data, x.tensor().data, static_cast<std::size_t>(source.bytes()));
    }
    communicate(transport, Gather{source, is_root ? y.tensor() : Tensor{}, group, v.root},
                Lane::tp);
    y.expect(transport, v.to_string("gather"),
             [&](std::int64_t i) { return value_at(static_cast<int>(i / v.numel), i % v.numel); });
  });
}

inline void scatter_is_exact(Transport& transport) {
  const Group group = connected_world(transport);
  for_all_roots(group, [&](const Variant& v) {
    const bool is_root = group.position == v.root;
    Data x{v.dtype, is_root ? v.numel * group.size : 0};
    Data y{v.dtype, v.numel};
    x.fill([&](std::int64_t i) { return value_at(v.root, i); });
    const bool own = is_root && v.in_place;
    communicate(transport,
                Scatter{is_root ? x.tensor() : Tensor{},
                        own ? x.block(v.root, v.numel) : y.tensor(), group, v.root},
                Lane::tp);
    const std::string what = v.to_string("scatter");
    if (is_root)
      x.expect(transport, "the input of " + what,
               [&](std::int64_t i) { return value_at(v.root, i); });
    if (!own)
      y.expect(transport, what,
               [&](std::int64_t i) { return value_at(v.root, group.position * v.numel + i); });
  });
}

/// Nobody leaves before the last one, who comes late, has come. All members share a clock.
inline void barrier_waits_for_all(Transport& transport) {
  const Group group = connected_world(transport);
  const auto now_s = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  for (int late = 0; late < group.size; ++late) {
    transport.barrier();
    if (group.position == late) std::this_thread::sleep_for(std::chrono::milliseconds{30});
    const double came_s = now_s();
    communicate(transport, Barrier{group}, Lane::tp);
    const double left_s = now_s();
    EXPECT_GE(left_s, transport.gather(came_s)[static_cast<std::size_t>(late)])
        << "rank " << transport.rank() << " did not wait for member " << late;
  }
}

}  // namespace shardmark::conformance
