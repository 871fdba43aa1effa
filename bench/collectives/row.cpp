#include "bench/collectives/row.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <array>

namespace shardmark::bench::collectives {

std::string_view name_of(Pattern pattern) {
  constexpr std::array<std::string_view, 5> names{"", "ring", "ping", "ping-pong", "bidirectional"};
  return names[static_cast<std::size_t>(pattern)];
}

std::string_view nccl_name_of(DType dtype) {
  constexpr std::array<std::string_view, num_dtypes> names{"float",  "bfloat16", "int32",
                                                           "double", "half",     "int8"};
  return names[static_cast<std::size_t>(dtype)];
}

double Row::algbw_GBps() const {
  return time.p50 > 0 ? static_cast<double>(point.size_bytes) / time.p50 / 1e3 : 0;
}

double Row::busbw_GBps() const {
  return algbw_GBps() * busbw_factor(point.collective, point.group_size);
}

double Row::copy_GBps() const {
  return copy_us > 0 ? static_cast<double>(point.size_bytes) / copy_us / 1e3 : 0;
}

double Row::efficiency_pct() const { return copy_us > 0 ? 100 * busbw_GBps() / copy_GBps() : 0; }

const Wait* Row::longest_wait() const {
  const auto longest = std::ranges::max_element(waits, {}, &Wait::wait_us);
  return longest == waits.end() ? nullptr : &*longest;
}

std::string describe(const Point& point) {
  std::string text = message(name_of(point.collective), ' ', name_of(point.pattern),
                             point.pattern == Pattern::none ? "" : " ", point.algorithm, ' ',
                             nccl_name_of(point.dtype));
  if (facts_of(point.collective).has_reduction) text += message(' ', name_of(point.reduction));
  return text + message(' ', point.size_bytes, " B", point.in_place ? " in place" : "");
}

}  // namespace shardmark::bench::collectives
