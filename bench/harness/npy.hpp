#pragma once

#include "core/types.hpp"

#include <string>
#include <vector>

namespace shardmark::bench {

/// Writes row-major f32 values (or, for `as_integers`, 32-bit integers) as a NumPy array file,
/// format 1.0. Throws Error when the file cannot be written.
void write_npy(const std::string& path, const Shape& shape, const std::vector<float>& values,
               bool as_integers = false);

}  // namespace shardmark::bench
