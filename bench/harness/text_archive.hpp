#pragma once

#include <memory>
#include <string>

namespace shardmark::bench {

/// A text file that is written from front to back, gzip-compressed where zlib is built in. It grows
/// under a temporary name and takes its own when closed, so it is whole or not there.
class TextArchive {
 public:
  /// `path` without the ".gz" that it may get. Throws InputError when it cannot be written.
  explicit TextArchive(std::string path);
  TextArchive(const TextArchive&) = delete;
  TextArchive& operator=(const TextArchive&) = delete;
  ~TextArchive();

  /// Throws Error when the text cannot be kept.
  void write(const std::string& text);
  void close();
  /// ".gz" or nothing.
  [[nodiscard]] static std::string suffix();

 private:
  struct Stream;
  [[noreturn]] void fail() const;
  std::string path_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace shardmark::bench
