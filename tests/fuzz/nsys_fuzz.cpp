// Any bytes as an export of Nsight Systems: read or refused, never a crash or an endless loop.

#include "core/error.hpp"
#include "profiler/account.hpp"
#include "profiler/read/read.hpp"

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace {

/// A file in memory that each input replaces. SQLite resolves links, so that a nameless one, which
/// is known by a link only, could not be opened.
class MemoryFile {
 public:
  MemoryFile() : descriptor_{mkstemp(path_.data())} {
    if (descriptor_ < 0) std::abort();
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() {
    close(descriptor_);
    unlink(path_.c_str());
  }
  void write(const std::uint8_t* data, std::size_t size) const {
    if (ftruncate(descriptor_, 0) != 0 ||
        pwrite(descriptor_, data, size, 0) != static_cast<ssize_t>(size))
      std::abort();
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_{"/dev/shm/shardmark_nsys_fuzz_XXXXXX"};
  int descriptor_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const MemoryFile file;
  file.write(data, size);
  try {
    for (const shardmark::Timeline& timeline : shardmark::read_nsys(file.path())) {
      const auto classes = classify(timeline, shardmark::CommRule::automatic, {});
      for (const shardmark::Window& window : windows_of(timeline))
        (void)account(timeline, classes, window);
    }
  } catch (const shardmark::InputError&) {
  }
  return 0;
}
