#pragma once

#include "core/error.hpp"
#include "layers/pipeline/generate.hpp"
#include "layers/pipeline/validate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace shardmark::pipeline {

/// Whether the schedule allows the request.
inline bool allows(ScheduleKind kind, const Request& request) {
  try {
    check_rules(kind, request);
    return true;
  } catch (const InputError&) {
    return false;
  }
}

/// Every schedule at every number of ranks and micro-batches that it allows.
template <class Visit>
void for_each_schedule(const std::vector<int>& ranks, const std::vector<int>& micro,
                       Visit&& visit) {
  for (const ScheduleFacts& facts : schedules())
    for (const int p : ranks)
      for (const int m : micro) {
        const Request request{p, m};
        if (!allows(facts.kind, request)) continue;
        SCOPED_TRACE(message(facts.name, " p ", p, " m ", m));
        visit(facts.kind, generate(facts.kind, request));
      }
}

inline std::string all_of(const std::vector<Problem>& problems) {
  std::string text;
  for (const Problem& problem : problems) text += to_text(problem) + '\n';
  return text;
}

inline void expect_valid(const Schedule& schedule) {
  const auto problems = validate(schedule);
  EXPECT_TRUE(problems.empty()) << all_of(problems);
}

}  // namespace shardmark::pipeline
