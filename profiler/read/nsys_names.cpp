#include "profiler/read/nsys_names.hpp"

#include "profiler/timeline.hpp"

namespace shardmark::nsys {

std::uint32_t Names::add(std::string_view name) {
  const auto place = places_.find(name);
  if (place != places_.end()) return place->second;
  const auto index = static_cast<std::uint32_t>(names_.size());
  places_.emplace(names_.emplace_back(name), index);
  return index;
}

StringTable::StringTable(Database& database, Names& names)
    : database_{database}, names_{names}, table_{database.find_table({"StringIds"})} {
  by_key_ = !table_.empty() && database.is_primary_key(table_, "id");
  // Without a key each question would read the whole table.
  if (!by_key_)
    database.scan(table_, {"id", "value"}, [&](const Row& row) {
      if (const auto id = row.integer(0)) found_.emplace(*id, names_.add(row.bytes(1)));
    });
}

std::uint32_t StringTable::find(std::int64_t id) {
  const auto known = found_.find(id);
  if (known != found_.end()) return known->second;
  std::uint32_t index = no_index;
  if (by_key_)
    if (const auto text = database_.look_up(table_, "id", "value", id)) index = names_.add(*text);
  found_.emplace(id, index);
  return index;
}

}  // namespace shardmark::nsys
