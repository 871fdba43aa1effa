#include "profiler/analyse.hpp"

#include <algorithm>

namespace shardmark {
namespace {

/// Place of the first of united spans that ends after `time_ns`: few spans against many must not
/// take as long as the many.
std::size_t first_after(std::span<const Span> spans, std::int64_t time_ns) {
  return static_cast<std::size_t>(std::ranges::upper_bound(spans, time_ns, {}, &Span::end_ns) -
                                  spans.begin());
}

}  // namespace

std::vector<Span> united(std::vector<Span> spans) {
  std::erase_if(spans, [](const Span& span) { return span.end_ns <= span.start_ns; });
  std::ranges::sort(spans, {}, &Span::start_ns);
  std::vector<Span> result;
  for (const Span& span : spans) {
    if (result.empty() || result.back().end_ns < span.start_ns)
      result.push_back(span);
    else
      result.back().end_ns = std::max(result.back().end_ns, span.end_ns);
  }
  return result;
}

std::vector<Span> intersected(std::span<const Span> a, std::span<const Span> b) {
  std::vector<Span> result;
  if (a.empty() || b.empty()) return result;
  std::size_t i = first_after(a, b.front().start_ns), j = first_after(b, a.front().start_ns);
  while (i < a.size() && j < b.size()) {
    const Span common{std::max(a[i].start_ns, b[j].start_ns), std::min(a[i].end_ns, b[j].end_ns)};
    if (common.start_ns < common.end_ns) result.push_back(common);
    ++(a[i].end_ns < b[j].end_ns ? i : j);
  }
  return result;
}

std::vector<Span> subtracted(std::span<const Span> a, std::span<const Span> b) {
  std::vector<Span> result;
  if (a.empty()) return result;
  std::size_t j = first_after(b, a.front().start_ns);
  for (Span rest : a) {
    while (j < b.size() && b[j].end_ns <= rest.start_ns) ++j;
    for (std::size_t k = j; k < b.size() && b[k].start_ns < rest.end_ns; ++k) {
      if (rest.start_ns < b[k].start_ns) result.push_back({rest.start_ns, b[k].start_ns});
      rest.start_ns = b[k].end_ns;
    }
    if (rest.start_ns < rest.end_ns) result.push_back(rest);
  }
  return result;
}

std::int64_t length_ns(std::span<const Span> spans) {
  std::int64_t length = 0;
  for (const Span& span : spans) length += span.end_ns - span.start_ns;
  return length;
}

Occupancy occupancy(std::span<const KernelRecord> records, const Span& window) {
  std::vector<Span> comp, comm;
  for (const KernelRecord& record : records) {
    const Span span{std::max(record.start_ns, window.start_ns),
                    std::min(record.end_ns, window.end_ns)};
    (record.kind == OpKind::communication ? comm : comp).push_back(span);
  }
  comp = united(std::move(comp));
  comm = united(std::move(comm));
  Occupancy result{length_ns(comp), length_ns(comm), length_ns(intersected(comp, comm)), 0};
  result.exposed_comm_ns = result.comm_ns - result.overlapped_ns;
  return result;
}

}  // namespace shardmark
