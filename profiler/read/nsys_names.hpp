#pragma once

#include "profiler/read/nsys_database.hpp"

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

namespace shardmark::nsys {

/// The names of a file, each once.
class Names {
 public:
  std::uint32_t add(std::string_view name);
  const std::string& operator[](std::uint32_t index) const { return names_[index]; }
  [[nodiscard]] std::size_t size() const { return names_.size(); }

 private:
  std::deque<std::string> names_;
  std::unordered_map<std::string_view, std::uint32_t> places_;
};

/// The strings that other tables refer to by number. Exports have millions, most of which nothing
/// asks for, so each is fetched when it is.
class StringTable {
 public:
  StringTable(Database& database, Names& names);
  /// Index of the string in the names of the file; no_index if there is no such string.
  std::uint32_t find(std::int64_t id);

 private:
  Database& database_;
  Names& names_;
  std::string table_;
  bool by_key_;
  std::unordered_map<std::int64_t, std::uint32_t> found_;
};

}  // namespace shardmark::nsys
