#include "profiler/read/block_source.hpp"

#include "core/error.hpp"

#include <zlib.h>

#include <algorithm>
#include <limits>

namespace shardmark {
namespace {

constexpr std::size_t input_size = 128 * 1024;
constexpr int gzip_window = 15 + 16;  ///< largest window; 16 asks for gzip's header and checksum

}  // namespace

void BlockSource::EndInflate::operator()(z_stream_s* stream) const {
  inflateEnd(stream);
  delete stream;
}

BlockSource::BlockSource(const std::filesystem::path& file)
    : file_{file, std::ios::binary}, input_(input_size) {
  std::error_code none;
  if (!file_ || std::filesystem::is_directory(file, none))
    throw InputError{message(file.string(), " cannot be opened: give a file that can be read")};
  fill_input();
  if (filled_ < 2 || input_[0] != '\x1f' || input_[1] != '\x8b') return;
  auto stream = std::make_unique<z_stream>();
  SHARDMARK_CHECK(inflateInit2(stream.get(), gzip_window) == Z_OK, "zlib does not start");
  gzip_.reset(stream.release());
  in_stream_ = true;
}

bool BlockSource::fill_input() {
  file_.read(input_.data(), static_cast<std::streamsize>(input_.size()));
  next_ = 0;
  filled_ = static_cast<std::size_t>(file_.gcount());
  num_bytes_read_ += file_.gcount();
  return filled_ > 0;
}

std::size_t BlockSource::read(char* to, std::size_t size) {
  std::size_t num = 0;
  while (num < size && !ended_) {
    if (next_ == filled_ && !fill_input()) {
      if (in_stream_)
        fault_ = message("gzip data break off at byte ", num_bytes_read_, " of the file");
      ended_ = true;
    } else {
      num += gzip_ ? inflate_some(to + num, size - num) : copy(to + num, size - num);
    }
  }
  return num;
}

std::size_t BlockSource::copy(char* to, std::size_t size) {
  const std::size_t num = std::min(size, filled_ - next_);
  std::copy_n(input_.data() + next_, num, to);
  next_ += num;
  return num;
}

std::size_t BlockSource::inflate_some(char* to, std::size_t size) {
  if (!in_stream_) {
    inflateReset(gzip_.get());
    in_stream_ = true;
  }
  size = std::min<std::size_t>(size, std::numeric_limits<uInt>::max());
  gzip_->next_in = reinterpret_cast<Bytef*>(input_.data() + next_);
  gzip_->avail_in = static_cast<uInt>(filled_ - next_);
  gzip_->next_out = reinterpret_cast<Bytef*>(to);
  gzip_->avail_out = static_cast<uInt>(size);
  const int state = inflate(gzip_.get(), Z_NO_FLUSH);
  next_ = filled_ - gzip_->avail_in;
  if (state == Z_STREAM_END) {
    in_stream_ = false;
    ++num_streams_;
  } else if (state != Z_OK && state != Z_BUF_ERROR) {
    ended_ = true;
    // What follows a stream and does not begin one is padding, as gzip takes it.
    if (num_streams_ == 0 || gzip_->total_out > 0)
      fault_ = message("gzip data are damaged before byte ",
                       num_bytes_read_ - static_cast<std::int64_t>(gzip_->avail_in),
                       " of the file (", gzip_->msg ? gzip_->msg : "no reason given", ")");
  }
  return size - gzip_->avail_out;
}

}  // namespace shardmark
