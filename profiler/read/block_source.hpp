#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

struct z_stream_s;

namespace shardmark {

/// Text of a file in blocks, inflated on the way if its first bytes say gzip. Holds 128 KiB and
/// zlib's window whatever the size of the file.
class BlockSource {
 public:
  /// Throws InputError if the file cannot be opened.
  explicit BlockSource(const std::filesystem::path& file);

  /// Fills `to` as far as there is text; less than `size` only at the end.
  [[nodiscard]] std::size_t read(char* to, std::size_t size);

  /// Empty, or why the text ends early: "gzip data break off at byte 1234 of the file".
  [[nodiscard]] const std::string& fault() const { return fault_; }

 private:
  struct EndInflate {
    void operator()(z_stream_s* stream) const;
  };
  bool fill_input();
  std::size_t copy(char* to, std::size_t size);
  std::size_t inflate_some(char* to, std::size_t size);

  std::ifstream file_;
  std::vector<char> input_;
  std::size_t next_{0}, filled_{0};  ///< what of input_ is to be read
  std::int64_t num_bytes_read_{0};   ///< of the file
  std::unique_ptr<z_stream_s, EndInflate> gzip_;
  bool in_stream_{false};  ///< within one of the gzip streams that may follow each other
  int num_streams_{0};     ///< that are complete
  bool ended_{false};
  std::string fault_;
};

}  // namespace shardmark
