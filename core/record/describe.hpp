#pragma once

#include "core/error.hpp"
#include "core/record.hpp"

#include <string>

namespace shardmark {

/// How problems name an op: "#12 step/mlp matmul".
[[nodiscard]] inline std::string describe(const OpRecord& record) {
  const bool has_path = record.path != nullptr && !record.path->empty();
  return message('#', record.seq, ' ', has_path ? *record.path : "-", ' ', name_of(record.op));
}

}  // namespace shardmark
