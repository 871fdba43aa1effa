#pragma once

#include "core/error.hpp"

#include <string>

namespace shardmark::test {

/// What `action` says when it refuses its input; "accepted" where it does not.
template <class Action>
std::string refusal(const Action& action) {
  try {
    (void)action();
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace shardmark::test
