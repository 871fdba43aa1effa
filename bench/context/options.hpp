#pragma once

#include "bench/harness/options.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace shardmark::bench::context {

/// Everything the command line of shardmark-cp says; `base` is what it shares with shardmark-tp.
struct Options {
  bench::Options base;

  std::vector<std::int64_t> head_dim, window;
  std::vector<std::int64_t> seqlens;  ///< one packing, not a sweep

  std::vector<ContextKind> kinds{ContextKind::ring, ContextKind::ulysses, ContextKind::all_gather};
  std::vector<TokenOrder> orders{TokenOrder::zigzag};
  std::vector<int> cp;  ///< empty: 1 and as many ranks as there are
  int ulysses{2};
  bool ulysses_outer{false};

  bool advise{false};
};

/// Reads the arguments (without the program's name). Throws InputError naming the option, the
/// value, the rule and what would work.
[[nodiscard]] Options parse_options(const std::vector<std::string>& arguments);

/// The tensor-parallel degrees, ascending, and the context-parallel ones at one of them.
[[nodiscard]] std::vector<int> tp_degrees(const Options& options);
[[nodiscard]] std::vector<int> cp_degrees(const Options& options, int tp, int world_size);

/// How the options want the program to be started.
[[nodiscard]] LaunchRequest launch_request(const Options& options);

}  // namespace shardmark::bench::context
