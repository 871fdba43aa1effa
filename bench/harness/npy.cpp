#include "bench/harness/npy.hpp"

#include "core/error.hpp"

#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>

namespace shardmark::bench {
namespace {

/// Magic, version, length and a Python dict, padded so that the data begins at a multiple of 64.
std::string npy_header(const Shape& shape, const char* descr) {
  std::string extents;
  for (std::size_t dim = 0; dim < shape.num_dims(); ++dim)
    extents += message(shape[dim], dim + 1 < shape.num_dims() ? ", " : ",");
  std::string dict =
      message("{'descr': '", descr, "', 'fortran_order': False, 'shape': (", extents, "), }");
  constexpr std::size_t prefix = 10;
  while ((prefix + dict.size() + 1) % 64 != 0) dict += ' ';
  dict += '\n';
  std::string header{"\x93NUMPY\x01\x00", 8};
  header += static_cast<char>(dict.size() & 0xff);
  header += static_cast<char>(dict.size() >> 8);
  return header + dict;
}

template <class T>
void put(std::ofstream& file, const std::vector<T>& values) {
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(T)));
}

}  // namespace

void write_npy(const std::string& path, const Shape& shape, const std::vector<float>& values,
               bool as_integers) {
  static_assert(std::endian::native == std::endian::little, "descr says little-endian");
  std::ofstream file{path, std::ios::binary};
  file << npy_header(shape, as_integers ? "<i4" : "<f4");
  if (as_integers)
    put(file, std::vector<std::int32_t>(values.begin(), values.end()));
  else
    put(file, values);
  file.close();
  if (!file) throw Error{message("cannot write ", path, ": ", std::strerror(errno))};
}

}  // namespace shardmark::bench
