#pragma once

#include "core/error.hpp"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cstdint>
#include <string>
#include <utility>

namespace shardmark {

/// globalTid of a thread, or globalPid where the thread is 0, as Nsight Systems serializes them.
constexpr std::int64_t global_id(std::int64_t process, std::int64_t thread = 0) {
  return (std::int64_t{1} << 48U) | (process << 24U) | thread;
}

/// An SQLite file in the making.
class NsysFile {
 public:
  explicit NsysFile(std::string path) : path_{std::move(path)} {
    EXPECT_EQ(sqlite3_open(path_.c_str(), &connection_), SQLITE_OK);
    run("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF");
  }
  NsysFile(const NsysFile&) = delete;
  NsysFile& operator=(const NsysFile&) = delete;
  ~NsysFile() { sqlite3_close(connection_); }

  NsysFile& run(const std::string& sql) {
    char* problem = nullptr;
    EXPECT_EQ(sqlite3_exec(connection_, sql.c_str(), nullptr, nullptr, &problem), SQLITE_OK)
        << sql << ": " << problem;
    sqlite3_free(problem);
    return *this;
  }
  template <class... Values>
  NsysFile& insert(const std::string& table, const Values&... values) {
    std::string list;
    ((list += (list.empty() ? "" : ", ") + message(values)), ...);
    return run("INSERT INTO " + table + " VALUES (" + list + ")");
  }

  /// The tables of schema 3.x as far as they matter.
  NsysFile& create_tables() {
    return run(R"(
      CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
      CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
        deviceId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER,
        globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL,
        mangledName INTEGER, graphNodeId INTEGER);
      CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL,
        deviceId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER,
        globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL,
        srcDeviceId INTEGER, dstDeviceId INTEGER);
      CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL,
        deviceId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER,
        globalPid INTEGER);
      CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
        globalTid INTEGER, correlationId INTEGER);
      CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
        text TEXT, textId INTEGER, globalTid INTEGER, domainId INTEGER, jsonText TEXT,
        jsonTextId INTEGER, binaryData TEXT);
      CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER NOT NULL,
        schemaId INTEGER NOT NULL, idx INTEGER NOT NULL, type INTEGER, name TEXT,
        offset INTEGER);
      CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
      CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT);
      CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT NOT NULL,
        name TEXT NOT NULL, nameEnum INTEGER NOT NULL, value TEXT NOT NULL);
      INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.13.2');
      INSERT INTO TARGET_INFO_GPU VALUES (1, 0, 'GPU zero '), (1, 1, 'GPU one');)");
  }
  /// Its number in StringIds.
  std::int64_t text(const std::string& value) {
    insert("StringIds", ++num_texts_, '\'' + value + '\'');
    return num_texts_;
  }
  NsysFile& kernel(std::int64_t start_ns, std::int64_t end_ns, std::int64_t name, int device = 0,
                   int stream = 7, std::int64_t correlation = 0, std::int64_t process = 100) {
    return insert("CUPTI_ACTIVITY_KIND_KERNEL", start_ns, end_ns, device, stream, correlation,
                  global_id(process), name, name, "NULL", "NULL");
  }
  NsysFile& call(std::int64_t start_ns, std::int64_t end_ns, std::int64_t correlation,
                 std::int64_t process = 100, std::int64_t thread = 1) {
    return insert("CUPTI_ACTIVITY_KIND_RUNTIME", start_ns, end_ns, global_id(process, thread),
                  correlation);
  }
  /// A push and its pop on thread 1.
  NsysFile& range(std::int64_t start_ns, std::int64_t end_ns, const std::string& name,
                  std::int64_t process = 100) {
    return insert("NVTX_EVENTS", start_ns, end_ns, 59, '\'' + name + '\'', "NULL",
                  global_id(process, 1), 0, "NULL", "NULL", "NULL");
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  sqlite3* connection_{nullptr};
  std::int64_t num_texts_{0};
};

}  // namespace shardmark
