#include "profiler/read/nsys_payload.hpp"

#include <algorithm>
#include <charconv>
#include <string>

namespace shardmark::nsys {
namespace {

/// NCCL's words for the fields, in the order of PayloadSchemas::Field.
constexpr std::array<std::string_view, 4> field_names{
    "NCCL communicator ID", "Message size [bytes]", "No. of ranks", "Peer rank"};

/// Bytes of NVTX_PAYLOAD_ENTRY_TYPE_*, of those that are integers on 64-bit Linux; 0 for others.
std::size_t width_of(std::int64_t type) {
  constexpr std::array<std::size_t, 24> widths{0, 1, 1, 2, 2, 4, 4, 8, 8, 8, 8, 1,
                                               1, 2, 2, 4, 4, 8, 8, 0, 0, 0, 8, 8};
  return type > 0 && type < static_cast<std::int64_t>(widths.size())
             ? widths[static_cast<std::size_t>(type)]
             : 0;
}

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;)
    value = value << 8U | static_cast<unsigned char>(bytes[i]);
  return value;
}

/// The number behind `"name":`, which may be quoted.
std::optional<std::uint64_t> number_in_json(std::string_view json, std::string_view name) {
  std::size_t at = json.find('"' + std::string{name} + '"');
  if (at == std::string_view::npos) return std::nullopt;
  at = json.find_first_not_of(" \t\n:\"", at + name.size() + 2);
  if (at == std::string_view::npos) return std::nullopt;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(json.data() + at, json.data() + json.size(), value);
  return error == std::errc{} ? std::optional{value} : std::nullopt;
}

}  // namespace

PayloadSchemas::PayloadSchemas(Database& database) {
  database.scan(
      database.find_table({"NVTX_PAYLOAD_SCHEMA_ENTRIES"}),
      {"domainId", "schemaId", "type", "name", "offset"}, [&](const Row& row) {
        const auto field = std::ranges::find(field_names, row.bytes(3));
        const std::size_t width = width_of(row.integer(2).value_or(0));
        if (field == field_names.end() || width == 0) return;
        // Files list a schema once per process.
        Schema& schema = schemas_[{row.integer(0).value_or(0), row.integer(1).value_or(0)}];
        std::optional<Entry>& entry = schema[static_cast<std::size_t>(field - field_names.begin())];
        // The first entry has no offset.
        if (!entry) entry = Entry{row.integer(4).value_or(0), width};
      });
}

NcclPayload PayloadSchemas::decode(std::int64_t domain, std::string_view binary,
                                   std::string_view json) const {
  NcclPayload payload;
  constexpr std::size_t schema_at = 8, header_bytes = 32;
  if (binary.size() >= header_bytes) {
    const auto schema = static_cast<std::int64_t>(little_endian(binary.substr(schema_at, 8)));
    const auto found = schemas_.find({domain, schema});
    if (found == schemas_.end()) return payload;
    const std::string_view fields = binary.substr(header_bytes);
    for (std::size_t field = 0; field < found->second.size(); ++field) {
      const std::optional<Entry>& entry = found->second[field];
      if (!entry || entry->offset < 0) continue;
      const auto offset = static_cast<std::size_t>(entry->offset);
      if (offset < fields.size() && fields.size() - offset >= entry->width)
        set(payload, static_cast<Field>(field), little_endian(fields.substr(offset, entry->width)));
    }
  } else if (!json.empty()) {
    for (std::size_t field = 0; field < field_names.size(); ++field)
      if (const auto value = number_in_json(json, field_names[field]))
        set(payload, static_cast<Field>(field), *value);
  }
  return payload;
}

void PayloadSchemas::set(NcclPayload& payload, Field field, std::uint64_t value) {
  // Beyond these, which no machine reaches, sums could overflow.
  constexpr std::uint64_t most_bytes = std::uint64_t{1} << 42U, most_ranks = 1U << 20U;
  switch (field) {
    case Field::communicator:
      payload.communicator = value;
      break;
    case Field::bytes:
      if (value < most_bytes) payload.bytes = static_cast<std::int64_t>(value);
      break;
    case Field::num_ranks:
      if (value < most_ranks) payload.num_ranks = static_cast<int>(value);
      break;
    case Field::peer:
      if (value < most_ranks) payload.peer = static_cast<int>(value);
      break;
  }
}

}  // namespace shardmark::nsys
