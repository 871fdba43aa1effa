#pragma once

#include "core/error.hpp"
#include "core/launch.hpp"

#include <string>

namespace shardmark::test {

/// The error that run_threads rethrows, as text.
template <class Kind = Error>
std::string error_of(int ranks, const RankBody& body) {
  try {
    run_threads(ranks, body);
  } catch (const Kind& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace shardmark::test
