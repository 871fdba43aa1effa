#pragma once

#include <string>
#include <vector>

namespace shardmark::bench {

/// One line with RFC 4180 quoting, newline included.
[[nodiscard]] std::string csv_line(const std::vector<std::string>& cells);
/// The rows of a CSV text, quoting undone. An incomplete last line is left out.
[[nodiscard]] std::vector<std::vector<std::string>> parse_csv(const std::string& text);
/// The contents of a file. Throws InputError if it cannot be read.
[[nodiscard]] std::string read_file(const std::string& path);

/// Makes the folder of a run; `files` of an earlier run get the suffix .old unless it is resumed.
/// Throws InputError when nothing can be written there.
void prepare_folder(const std::string& folder, bool resume, const std::vector<std::string>& files);

/// Replaces a file as a whole. Throws Error when it cannot be written.
void write_whole(const std::string& path, const std::string& text);

/// A file that grows by whole rows: each is on the disk when `append` returns.
class CsvFile {
 public:
  /// Creates the file with a header, or goes on with one that has the same header. Throws
  /// InputError when the file cannot be written or has other columns.
  CsvFile(std::string path, const std::vector<std::string>& header, bool resume);
  CsvFile(const CsvFile&) = delete;
  CsvFile& operator=(const CsvFile&) = delete;
  ~CsvFile();

  /// Throws Error when the row cannot be written; the file then ends with the row before.
  void append(const std::vector<std::vector<std::string>>& rows);

 private:
  void write(const std::string& text);

  std::string path_;
  int file_{-1};
  long length_{0};  ///< up to the end of the last complete row
};

}  // namespace shardmark::bench
