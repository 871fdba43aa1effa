#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

struct sqlite3;
struct sqlite3_stmt;

namespace shardmark::nsys {

/// The row under a scan's cursor; columns by their place in the list of names that was asked for.
class Row {
 public:
  /// Nothing for NULL, for a column that the table lacks, and for a value that is no integer.
  [[nodiscard]] std::optional<std::int64_t> integer(int column) const;
  /// Text or blob, valid until the next row; empty for anything else.
  [[nodiscard]] std::string_view bytes(int column) const;

 private:
  friend class Database;
  Row(sqlite3_stmt* statement, std::int64_t& bytes_left)
      : statement_{statement}, bytes_left_{bytes_left} {}
  sqlite3_stmt* statement_;
  std::int64_t& bytes_left_;
};

/// An SQLite file of unknown origin, read only: nothing that its schema defines is run (views,
/// triggers, functions), and damaged pages neither crash nor make an endless table.
class Database {
 public:
  /// Throws InputError for a file that is no database or whose schema cannot be read.
  explicit Database(const std::filesystem::path& file);

  [[nodiscard]] const std::vector<std::string>& tables() const { return tables_; }
  /// The table of the first of these names that there is, in any case; else the first table whose
  /// name starts with one of them, as exporters append versions; else empty.
  [[nodiscard]] std::string find_table(std::initializer_list<std::string_view> names) const;

  /// None where the table cannot be read.
  [[nodiscard]] std::vector<std::string> columns_of(const std::string& table);
  /// Any case.
  [[nodiscard]] bool has_column(const std::string& table, std::string_view column);

  /// Calls `visit` for every row of `table` in the order of the file. Each column may be a list of
  /// names, "deviceId|device", of which the first that the table has counts. Stops at damage.
  /// Returns the number of rows. Reads nothing from a table without a name.
  std::int64_t scan(const std::string& table, std::initializer_list<std::string_view> columns,
                    const std::function<void(const Row&)>& visit);

  /// Text of `value_column` where `key_column` is `key`; nothing if there is none. Needs
  /// is_primary_key(table, key_column), else every call would read the whole table.
  std::optional<std::string> look_up(const std::string& table, std::string_view key_column,
                                     std::string_view value_column, std::int64_t key);
  [[nodiscard]] bool is_primary_key(const std::string& table, std::string_view column) const;

  /// Empty, or what was wrong with the file and where: rows before that were read.
  [[nodiscard]] const std::string& damage() const { return damage_; }

 private:
  struct Close {
    void operator()(sqlite3* connection) const;
    void operator()(sqlite3_stmt* statement) const;
  };
  using Statement = std::unique_ptr<sqlite3_stmt, Close>;
  [[nodiscard]] Statement prepare(const std::string& sql) const;
  [[nodiscard]] std::string reason() const;
  void list_tables(const std::filesystem::path& file);

  std::unique_ptr<sqlite3, Close> connection_;
  Statement look_up_;
  std::string look_up_sql_;
  std::int64_t file_bytes_{0};
  std::vector<std::string> tables_;
  std::string damage_;
};

}  // namespace shardmark::nsys
