#include "profiler/read/nsys_database.hpp"

#include "core/error.hpp"

#include <sqlite3.h>

#include <algorithm>
#include <cctype>

namespace shardmark::nsys {
namespace {

/// No row of a table takes fewer bytes of the file: two for its pointer in the page, one each for
/// length and number, and one for its header. More rows than fit mean pages that share pages.
constexpr std::int64_t min_row_bytes = 5;
/// Of a single value; names of kernels are kilobytes at most.
constexpr int max_value_bytes = 64 << 20;

bool same_letters(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

std::string identifier(std::string_view name) {
  std::string text{'"'};
  for (const char c : name) text += c == '"' ? std::string{"\"\""} : std::string{c};
  return text + '"';
}

/// The path as a URI, so that SQLite neither locks the file nor looks for a journal beside it.
std::string read_only_uri(const std::filesystem::path& file) {
  constexpr char digits[] = "0123456789ABCDEF";
  std::string uri{"file:"};
  for (const char c : std::filesystem::absolute(file).string()) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '/' || c == '.' || c == '_' || c == '-')
      uri += c;
    else
      uri += {'%', digits[byte >> 4U], digits[byte & 15U]};
  }
  return uri + "?mode=ro&immutable=1";
}

void distrust(sqlite3* connection) {
  for (const int option :
       {SQLITE_DBCONFIG_TRUSTED_SCHEMA, SQLITE_DBCONFIG_ENABLE_VIEW, SQLITE_DBCONFIG_ENABLE_TRIGGER,
        SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, SQLITE_DBCONFIG_DQS_DML, SQLITE_DBCONFIG_DQS_DDL})
    sqlite3_db_config(connection, option, 0, nullptr);
  // Nothing is writable here; with this SQLite reads what there is of a file that was cut off.
  sqlite3_db_config(connection, SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1, nullptr);
  sqlite3_limit(connection, SQLITE_LIMIT_LENGTH, max_value_bytes);
  sqlite3_limit(connection, SQLITE_LIMIT_EXPR_DEPTH, 20);
  sqlite3_limit(connection, SQLITE_LIMIT_ATTACHED, 0);
}

}  // namespace

std::optional<std::int64_t> Row::integer(int column) const {
  if (sqlite3_column_type(statement_, column) != SQLITE_INTEGER) return std::nullopt;
  return sqlite3_column_int64(statement_, column);
}

std::string_view Row::bytes(int column) const {
  const int type = sqlite3_column_type(statement_, column);
  if (type != SQLITE_TEXT && type != SQLITE_BLOB) return {};
  // The pointer first: it may convert the value, which changes its length.
  const void* data = type == SQLITE_TEXT
                         ? static_cast<const void*>(sqlite3_column_text(statement_, column))
                         : sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  bytes_left_ -= size;
  if (data == nullptr || size <= 0) return {};
  return {static_cast<const char*>(data), static_cast<std::size_t>(size)};
}

void Database::Close::operator()(sqlite3* connection) const { sqlite3_close_v2(connection); }
void Database::Close::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Database::Database(const std::filesystem::path& file) {
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  if (error) throw InputError{message("cannot read ", file.string(), ": ", error.message())};
  if (size == 0) throw InputError{message(file.string(), " is empty")};
  file_bytes_ = static_cast<std::int64_t>(size);
  sqlite3* connection = nullptr;
  const int code =
      sqlite3_open_v2(read_only_uri(file).c_str(), &connection,
                      SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, nullptr);
  connection_.reset(connection);
  if (code != SQLITE_OK) throw InputError{message("cannot read ", file.string(), ": ", reason())};
  distrust(connection);
  list_tables(file);
}

std::string Database::reason() const {
  return connection_ == nullptr ? "no memory" : sqlite3_errmsg(connection_.get());
}

Database::Statement Database::prepare(const std::string& sql) const {
  sqlite3_stmt* statement = nullptr;
  sqlite3_prepare_v2(connection_.get(), sql.c_str(), static_cast<int>(sql.size() + 1), &statement,
                     nullptr);
  return Statement{statement};
}

void Database::list_tables(const std::filesystem::path& file) {
  // Virtual tables run code of their own.
  const Statement statement = prepare(
      "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'create virtual%'");
  int code = SQLITE_ERROR;
  std::int64_t bytes_left = file_bytes_;
  if (statement != nullptr)
    while ((code = sqlite3_step(statement.get())) == SQLITE_ROW && bytes_left > 0)
      tables_.emplace_back(Row{statement.get(), bytes_left}.bytes(0));
  if (code != SQLITE_DONE)
    throw InputError{message(file.string(), " is no readable SQLite database: ", reason())};
}

std::string Database::find_table(std::initializer_list<std::string_view> names) const {
  const auto find = [&](const auto& matches) -> std::string {
    for (const std::string_view name : names)
      for (const std::string& table : tables_)
        if (matches(table, name)) return table;
    return {};
  };
  const std::string exact = find(same_letters);
  if (!exact.empty()) return exact;
  return find([](std::string_view table, std::string_view name) {
    return same_letters(table.substr(0, name.size()), name);
  });
}

std::vector<std::string> Database::columns_of(const std::string& table) {
  std::vector<std::string> columns;
  const Statement statement = prepare("SELECT * FROM " + identifier(table));
  if (statement == nullptr) {
    if (damage_.empty()) damage_ = message("table ", table, " cannot be read: ", reason());
    return columns;
  }
  for (int i = 0; i < sqlite3_column_count(statement.get()); ++i)
    columns.emplace_back(sqlite3_column_name(statement.get(), i));
  return columns;
}

bool Database::has_column(const std::string& table, std::string_view column) {
  return std::ranges::any_of(columns_of(table),
                             [&](const std::string& name) { return same_letters(name, column); });
}

std::int64_t Database::scan(const std::string& table,
                            std::initializer_list<std::string_view> columns,
                            const std::function<void(const Row&)>& visit) {
  if (table.empty()) return 0;
  const std::vector<std::string> present = columns_of(table);
  if (present.empty()) return 0;
  const auto select = [&](std::string_view alternatives) -> std::string {
    while (!alternatives.empty()) {
      const std::string_view name = alternatives.substr(0, alternatives.find('|'));
      for (const std::string& column : present)
        if (same_letters(column, name)) return identifier(column);
      alternatives.remove_prefix(std::min(name.size() + 1, alternatives.size()));
    }
    return "NULL";
  };
  std::string sql = "SELECT ";
  for (const std::string_view column : columns) sql += select(column) + ", ";
  // Indexes are made later, by other tools, and may be out of date.
  sql.replace(sql.size() - 2, 2, " FROM " + identifier(table) + " NOT INDEXED");
  const Statement statement = prepare(sql);
  int code = SQLITE_ERROR;
  std::int64_t rows = 0;
  // Twice, since text may grow when it is converted to UTF-8.
  std::int64_t bytes_left = 2 * file_bytes_;
  const Row row{statement.get(), bytes_left};
  const auto fits = [&] { return rows < file_bytes_ / min_row_bytes && bytes_left >= 0; };
  while (statement != nullptr && (code = sqlite3_step(statement.get())) == SQLITE_ROW && fits()) {
    visit(row);
    ++rows;
  }
  if (code != SQLITE_DONE && damage_.empty())
    damage_ = message("table ", table, " is damaged after ", rows,
                      " rows: ", code == SQLITE_ROW ? "it holds more than the file can" : reason());
  return rows;
}

std::optional<std::string> Database::look_up(const std::string& table, std::string_view key_column,
                                             std::string_view value_column, std::int64_t key) {
  const std::string sql = "SELECT " + identifier(value_column) + " FROM " + identifier(table) +
                          " WHERE " + identifier(key_column) + " = ?1";
  if (sql != look_up_sql_) {
    look_up_ = prepare(sql);
    look_up_sql_ = sql;
  }
  if (look_up_ == nullptr) return std::nullopt;
  sqlite3_reset(look_up_.get());
  sqlite3_bind_int64(look_up_.get(), 1, key);
  const int code = sqlite3_step(look_up_.get());
  std::int64_t bytes_left = file_bytes_;
  if (code == SQLITE_ROW) return std::string{Row{look_up_.get(), bytes_left}.bytes(0)};
  if (code != SQLITE_DONE && damage_.empty())
    damage_ = message("table ", table, " is damaged: ", reason());
  return std::nullopt;
}

bool Database::is_primary_key(const std::string& table, std::string_view column) const {
  int is_key = 0;
  const int code = sqlite3_table_column_metadata(connection_.get(), nullptr, table.c_str(),
                                                 std::string{column}.c_str(), nullptr, nullptr,
                                                 nullptr, &is_key, nullptr);
  return code == SQLITE_OK && is_key != 0;
}

}  // namespace shardmark::nsys
