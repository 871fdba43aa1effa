#include "bench/harness/npy.hpp"

#include "bench/harness/csv.hpp"

#include "scratch.hpp"
#include <gtest/gtest.h>

#include <cstring>

namespace shardmark::bench {
namespace {

TEST(Npy, IsFormat1WithAlignedLittleEndianData) {
  const std::string path = scratch_folder() + "/a.npy";
  write_npy(path, Shape{2, 3}, {1, 2, 3, 4, 5, 6.5F});
  const std::string bytes = read_file(path);
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const std::size_t header =
      static_cast<unsigned char>(bytes[8]) + 256U * static_cast<unsigned char>(bytes[9]);
  EXPECT_EQ((10 + header) % 64, 0U);
  EXPECT_NE(bytes.find("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3,), }"),
            std::string::npos);
  ASSERT_EQ(bytes.size(), 10 + header + 6 * 4);
  float last = 0;
  std::memcpy(&last, bytes.data() + bytes.size() - 4, 4);
  EXPECT_EQ(last, 6.5F);
}

TEST(Npy, IdsAreIntegers) {
  const std::string path = scratch_folder() + "/ids.npy";
  write_npy(path, Shape{2}, {7, 50000}, true);
  const std::string bytes = read_file(path);
  EXPECT_NE(bytes.find("'<i4', 'fortran_order': False, 'shape': (2,), "), std::string::npos);
  std::int32_t last = 0;
  std::memcpy(&last, bytes.data() + bytes.size() - 4, 4);
  EXPECT_EQ(last, 50000);
}

}  // namespace
}  // namespace shardmark::bench
