#include "bench/harness/csv.hpp"

#include "core/error.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace shardmark::bench {

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& cell : cells) {
    if (&cell != &cells.front()) line += ',';
    if (cell.find_first_of(",\"\n\r") == std::string::npos) {
      line += cell;
      continue;
    }
    line += '"';
    for (const char c : cell) line.append(c == '"' ? 2 : 1, c);
    line += '"';
  }
  return line + '\n';
}

std::vector<std::vector<std::string>> parse_csv(const std::string& text) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> row(1);
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      const bool doubled = c == '"' && i + 1 < text.size() && text[i + 1] == '"';
      if (c == '"' && !doubled) {
        quoted = false;
        continue;
      }
      if (doubled) ++i;
      row.back() += c;
    } else if (c == '"') {
      quoted = true;
    } else if (c == ',') {
      row.emplace_back();
    } else if (c == '\n') {
      rows.push_back(std::move(row));
      row.assign(1, "");
    } else if (c != '\r') {
      row.back() += c;
    }
  }
  return rows;
}

std::string read_file(const std::string& path) {
  if (std::filesystem::is_directory(path))
    throw InputError{message("cannot read ", path, ": it is a folder; give a file")};
  std::ifstream file{path, std::ios::binary};
  if (!file) throw InputError{message("cannot read ", path, ": ", std::strerror(errno))};
  return {std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{}};
}

void write_whole(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".part";
  {
    std::ofstream file{temporary, std::ios::binary};
    file << text << std::flush;
    if (!file) throw Error{message("cannot write ", temporary, ": ", std::strerror(errno))};
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0)
    throw Error{message("cannot rename ", temporary, ": ", std::strerror(errno))};
}

void prepare_folder(const std::string& folder, bool resume, const std::vector<std::string>& files) {
  namespace fs = std::filesystem;
  std::error_code problem;
  fs::create_directories(folder, problem);
  if (!problem && ::access(folder.c_str(), W_OK | X_OK) != 0)
    problem = {errno, std::generic_category()};
  if (problem)
    throw InputError{message("cannot write to ", folder, ": ", problem.message(),
                             "; give --out a folder that can be written")};
  if (resume) return;
  for (const std::string& name : files)
    if (const std::string path = folder + '/' + name; fs::exists(path))
      fs::rename(path, path + ".old");
  // Timelines of runs that went on with the one that is set aside.
  for (int part = 2;; ++part) {
    const std::string path = message(folder, "/trace-", part, ".json");
    bool found = false;
    for (const std::string& name : {path, path + ".gz"})
      if (fs::exists(name)) {
        fs::rename(name, name + ".old");
        found = true;
      }
    if (!found) return;
  }
}

CsvFile::CsvFile(std::string path, const std::vector<std::string>& header, bool resume)
    : path_{std::move(path)} {
  const bool goes_on = resume && ::access(path_.c_str(), F_OK) == 0;
  std::string complete;
  if (goes_on) {
    complete = read_file(path_);
    complete.erase(complete.rfind('\n') + 1);  // a run that was killed may leave half a row
    const auto rows = parse_csv(complete.substr(0, complete.find('\n') + 1));
    if (rows.empty() || rows.front() != header)
      throw InputError{message(path_,
                               " has other columns than this version writes; use another "
                               "--out, or leave out --resume")};
  }
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (goes_on ? 0 : O_TRUNC), 0644);
  if (file_ < 0)
    throw InputError{message("cannot write ", path_, ": ", std::strerror(errno),
                             "; give --out a folder that can be written")};
  length_ = static_cast<long>(complete.size());
  if (!goes_on) write(csv_line(header));
}

CsvFile::~CsvFile() {
  if (file_ >= 0) ::close(file_);
}

void CsvFile::append(const std::vector<std::vector<std::string>>& rows) {
  std::string text;
  for (const auto& row : rows) text += csv_line(row);
  write(text);
}

void CsvFile::write(const std::string& text) {
  std::size_t written = 0;
  int problem = 0;
  while (written < text.size() && problem == 0) {
    const ssize_t count = ::pwrite(file_, text.data() + written, text.size() - written,
                                   length_ + static_cast<long>(written));
    if (count > 0) written += static_cast<std::size_t>(count);
    if (count < 0 && errno != EINTR) problem = errno;
    if (count == 0) problem = ENOSPC;
  }
  // Some file systems notice a full disk only now; pipes and devices cannot be synced.
  if (problem == 0 && ::fsync(file_) != 0 && errno != EINVAL && errno != EROFS) problem = errno;
  if (problem == 0) {
    length_ += static_cast<long>(text.size());
    return;
  }
  const bool restored = ::ftruncate(file_, length_) == 0;
  throw Error{message("cannot write to ", path_, ": ", std::strerror(problem),
                      restored ? "; all rows before are complete" : "")};
}

}  // namespace shardmark::bench
