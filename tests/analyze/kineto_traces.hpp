#pragma once

#include "core/error.hpp"
#include "profiler/read/read.hpp"
#include "tests/bench/scratch.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace shardmark {

/// A complete event; times in microseconds as they are to stand in the text.
inline std::string event(const std::string& category, const std::string& name,
                         const std::string& start, const std::string& duration,
                         const std::string& args = "", int pid = 0, int tid = 7) {
  return message(R"({"ph": "X", "cat": ")", category, R"(", "name": ")", name, R"(", "pid": )", pid,
                 R"(, "tid": )", tid, R"(, "ts": )", start, R"(, "dur": )", duration,
                 R"(, "args": {)", args, "}}");
}
/// A trace of these events; `header`: members before them, each with its comma.
inline std::string trace_of(const std::vector<std::string>& events,
                            const std::string& header = "") {
  std::string text;
  for (const std::string& one : events) text += (text.empty() ? "" : ",\n") + one;
  return "{\"schemaVersion\": 1," + header + "\n\"traceEvents\": [\n" + text + "\n]}\n";
}

/// Path of a file with this text, alone in the test's folder.
inline std::string write_trace(const std::string& text, const std::string& name = "trace.json") {
  const std::string path = bench::scratch_folder() + '/' + name;
  std::ofstream{path, std::ios::binary} << text;
  return path;
}
inline Timeline read_trace(const std::string& text) {
  std::vector<Timeline> timelines = read_kineto(write_trace(text));
  EXPECT_THAT(timelines, testing::SizeIs(1));
  return std::move(timelines.at(0));
}

inline std::string name_of(const Timeline& timeline, std::size_t event) {
  return timeline.names.at(timeline.events.at(event).name);
}
inline const CommunicationCall& call_of(const Timeline& timeline, std::size_t event) {
  return timeline.calls.at(timeline.events.at(event).call);
}

}  // namespace shardmark
