#include "bench/harness/text_archive.hpp"

#ifdef SHARDMARK_HAVE_ZLIB
#include <zlib.h>
#endif

#include "core/error.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace shardmark::bench {
namespace {

std::string temporary(const std::string& path) { return path + ".part"; }

}  // namespace

#ifdef SHARDMARK_HAVE_ZLIB
struct TextArchive::Stream {
  gzFile file;
  explicit Stream(const std::string& path) : file{gzopen(path.c_str(), "wb6")} {}
  [[nodiscard]] bool is_open() const { return file != nullptr; }
  bool write(const std::string& text) {
    return text.empty() || gzwrite(file, text.data(), static_cast<unsigned>(text.size())) ==
                               static_cast<int>(text.size());
  }
  bool close() { return gzclose(file) == Z_OK; }
};
std::string TextArchive::suffix() { return ".gz"; }
#else
struct TextArchive::Stream {
  std::FILE* file;
  explicit Stream(const std::string& path) : file{std::fopen(path.c_str(), "wb")} {}
  [[nodiscard]] bool is_open() const { return file != nullptr; }
  bool write(const std::string& text) {
    return std::fwrite(text.data(), 1, text.size(), file) == text.size();
  }
  bool close() { return std::fclose(file) == 0; }
};
std::string TextArchive::suffix() { return ""; }
#endif

TextArchive::TextArchive(std::string path)
    : path_{std::move(path) + suffix()}, stream_{std::make_unique<Stream>(temporary(path_))} {
  if (!stream_->is_open()) {
    const std::string why = std::strerror(errno);
    stream_.reset();
    throw InputError{message("cannot write ", path_, ": ", why)};
  }
}

TextArchive::~TextArchive() {
  if (stream_ != nullptr) stream_->close();
}

void TextArchive::write(const std::string& text) {
  errno = 0;
  if (!stream_->write(text)) fail();
}

void TextArchive::close() {
  const std::unique_ptr<Stream> stream = std::move(stream_);
  errno = 0;
  if (!stream->close() || std::rename(temporary(path_).c_str(), path_.c_str()) != 0) fail();
}

void TextArchive::fail() const {
  throw Error{message("cannot write to ", temporary(path_), ": ",
                      errno == 0 ? "the file system is full" : std::strerror(errno))};
}

}  // namespace shardmark::bench
