#pragma once

#include "core/functions.hpp"
#include "core/rank.hpp"
#include "core/record/backend.hpp"

#include <memory>
#include <vector>

namespace shardmark::test {

/// One rank on the record backend with everything it submitted.
struct RecordedRank {
  RecordedRank(int id, const Mesh& mesh) : rank{id, mesh, backend, &list} {}
  RecordBackend backend;
  OpList list;
  Rank rank;
};

/// Runs `program(rank)` for every rank of the mesh and keeps the op lists. Paths stay valid as long
/// as this object.
class Recorded {
 public:
  template <class Program>
  Recorded(const Mesh& mesh, const Program& program) {
    for (int id = 0; id < mesh.size(); ++id) {
      ranks_.push_back(std::make_unique<RecordedRank>(id, mesh));
      program(ranks_.back()->rank);
      ops.push_back(ranks_.back()->list.ops);
    }
  }
  [[nodiscard]] const OpList& list(int rank) const {
    return ranks_[static_cast<std::size_t>(rank)]->list;
  }

  std::vector<std::vector<OpRecord>> ops;

 private:
  std::vector<std::unique_ptr<RecordedRank>> ranks_;
};

}  // namespace shardmark::test
