#include "bench/analyze/spans.hpp"

#include <algorithm>

namespace shardmark::bench {
namespace {

/// The first that ends after `time_ns`.
auto first_after(const std::vector<Span>& spans, std::int64_t time_ns) {
  return std::ranges::upper_bound(spans, time_ns, {}, &Span::end_ns);
}

}  // namespace

bool contains(const ChosenSpans& chosen, std::int64_t time_ns) {
  if (!chosen) return true;
  const auto span = first_after(*chosen, time_ns);
  return span != chosen->end() && span->start_ns <= time_ns;
}

bool lies_in(const ChosenSpans& chosen, const Span& time) {
  if (!chosen) return true;
  const auto span = first_after(*chosen, time.start_ns);
  return span != chosen->end() && span->start_ns < time.end_ns;
}

std::int64_t length_in(const ChosenSpans& chosen, const Span& time) {
  if (!chosen) return std::max<std::int64_t>(time.end_ns - time.start_ns, 0);
  std::int64_t length = 0;
  for (auto span = first_after(*chosen, time.start_ns);
       span != chosen->end() && span->start_ns < time.end_ns; ++span)
    length += std::max<std::int64_t>(
        std::min(span->end_ns, time.end_ns) - std::max(span->start_ns, time.start_ns), 0);
  return length;
}

std::vector<Span> cut_to(const ChosenSpans& chosen, std::vector<Span> united) {
  return chosen ? intersected(united, *chosen) : united;
}

}  // namespace shardmark::bench
