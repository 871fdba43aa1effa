#include "core/record/backend.hpp"

#include "core/error.hpp"

namespace shardmark {

void RecordBackend::read(const Tensor& from, void*) {
  throw Error{message("cannot read buffer ", from.buffer, ": the record backend holds no data")};
}

}  // namespace shardmark
