#pragma once

#include <span>
#include <string>
#include <string_view>

namespace shardmark {

/// The name that takes the fewest single-character edits from `wrong`; empty if none is close (more
/// than a third of the longer name would change).
[[nodiscard]] std::string_view nearest(std::string_view wrong,
                                       std::span<const std::string_view> names);
/// "; did you mean NAME?" or, if nothing is close, nothing.
[[nodiscard]] std::string did_you_mean(std::string_view wrong,
                                       std::span<const std::string_view> names);

}  // namespace shardmark
