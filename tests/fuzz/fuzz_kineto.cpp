#include "tests/fuzz/run_reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  shardmark::run_reader(shardmark::read_kineto, data, size);
  return 0;
}
