#include "core/error.hpp"
#include "profiler/cupti.hpp"

namespace shardmark {

std::string warning_of(const CuptiTimer::Report& report) {
  std::string text;
  const auto add = [&](std::uint64_t count, const char* what) {
    if (count > 0) text += message(text.empty() ? "CUPTI: " : ", ", count, ' ', what);
  };
  add(report.num_dropped, "records were dropped");
  add(report.num_without_op, "kernels or copies belong to no op");
  add(report.num_impossible, "have impossible times");
  return text;
}

}  // namespace shardmark
