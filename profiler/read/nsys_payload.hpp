#pragma once

#include "profiler/read/nsys_database.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace shardmark::nsys {

/// What NCCL attaches to the NVTX range of a call, as far as the file has it.
struct NcclPayload {
  std::optional<std::uint64_t> communicator;
  std::int64_t bytes{-1};  ///< NCCL's message: what one rank contributes, or gets, or one block
  int num_ranks{0};        ///< of the communicator, where it is made
  int peer{-1};            ///< of a send or receive
};

/// Layouts of NVTX's binary payloads, as the program registered them (NVTX_PAYLOAD_SCHEMA_ENTRIES).
/// A payload is there only if the export was made with --include-blobs or --include-json.
class PayloadSchemas {
 public:
  explicit PayloadSchemas(Database& database);
  /// `binary`: 32 bytes that name domain, schema and length, then the fields. `json`: the same as
  /// text, used if there is no binary data.
  [[nodiscard]] NcclPayload decode(std::int64_t domain, std::string_view binary,
                                   std::string_view json) const;

 private:
  enum class Field { communicator, bytes, num_ranks, peer };
  struct Entry {
    std::int64_t offset;
    std::size_t width;
  };
  using Schema = std::array<std::optional<Entry>, 4>;  ///< by field
  static void set(NcclPayload& payload, Field field, std::uint64_t value);
  std::map<std::pair<std::int64_t, std::int64_t>, Schema> schemas_;  ///< by domain and number
};

}  // namespace shardmark::nsys
