#include "bench/collectives/import.hpp"

#include "bench/collectives/import_nccl.hpp"
#include "bench/collectives/import_osu.hpp"

#include <istream>
#include <map>

namespace shardmark::bench::collectives {
namespace {

/// Lines of one process. Which tool it runs can change from one run to the next.
struct Source {
  NcclReader nccl{};
  OsuReader osu{};
  bool in_osu{false};
};

bool starts_nccl(std::string_view text) {
  if (!text.starts_with('#')) return false;
  const auto words = split_fields(text.substr(1));
  return !words.empty() && words[0] == "nThread";
}

}  // namespace

void ImportedLog::report(const LogLine& line, std::string reason) const {
  problems.push_back({.line = line.number, .reason = std::move(reason)});
}

std::vector<ImportedRow> import_log(std::istream& in, Problems& problems) {
  std::vector<ImportedRow> rows;
  ImportedLog log{.rows = rows, .problems = problems};
  std::map<std::string, Source> sources;
  std::string text;
  for (std::int64_t number = 1; std::getline(in, text); ++number) {
    LogLine line = without_prefix(text);
    line.number = number;
    line.terminated = !in.eof();
    const bool is_noise =
        line.text.empty() ||
        (!line.text.starts_with('#') && !parse_printed(split_fields(line.text)[0]) &&
         line.text.find("_perf") == std::string_view::npos &&
         line.text.find("rccl-tests") == std::string_view::npos);
    if (is_noise) continue;
    Source& source = sources[line.source];
    if (OsuReader::starts_a_test(line.text))
      source.in_osu = true;
    else if (starts_nccl(line.text))
      source.in_osu = false;
    if (source.in_osu)
      source.osu.take(line, log);
    else
      source.nccl.take(line, log);
  }
  return rows;
}

}  // namespace shardmark::bench::collectives
