#include "core/error.hpp"

namespace shardmark {

void fail_check(const char* expression, const char* file, int line, const std::string& what) {
  throw Error{message(what, " [", expression, "]"), message(file, ":", line)};
}

}  // namespace shardmark
