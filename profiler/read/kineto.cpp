#include "core/error.hpp"
#include "profiler/read/block_source.hpp"
#include "profiler/read/event_splitter.hpp"
#include "profiler/read/find.hpp"
#include "profiler/read/kineto_builder.hpp"
#include "profiler/read/read.hpp"

#include <string>
#include <string_view>

namespace shardmark {
namespace {

/// "trace_3.json.gz": the number; -1 for other names, and for numbers too long for a rank.
int last_number_in(std::string_view name) {
  for (const std::string_view ending : {".gz", ".json", ".trace", ".pt"})
    if (name.ends_with(ending)) name.remove_suffix(ending.size());
  constexpr std::size_t most_digits = 4;
  const std::size_t before = name.find_last_not_of("0123456789");
  if (before == std::string_view::npos || name[before] != '_') return -1;
  const std::string_view digits = name.substr(before + 1);
  return digits.empty() || digits.size() > most_digits ? -1 : std::stoi(std::string{digits});
}

/// What the splitter and the source have to say, after the end.
void add_fault(Timeline& timeline, const EventSplitter& splitter, const BlockSource& source) {
  if (!splitter.fault().empty()) {
    timeline.cut = splitter.fault();
  } else if (!source.fault().empty()) {
    timeline.faults.push_back("the trace is complete, but its " + source.fault());
  }
  if (splitter.rest_position() >= 0)
    timeline.warnings.push_back(
        message("what follows the trace from byte ", splitter.rest_position(), " on was not read"));
}

}  // namespace

std::vector<Timeline> read_kineto(const std::filesystem::path& file) {
  BlockSource source{file};
  EventSplitter splitter{source, {"distributedInfo", "deviceProperties"}};
  KinetoBuilder builder;
  for (;;) {
    const EventSplitter::Item item = splitter.next();
    if (item == EventSplitter::Item::end) break;
    if (item == EventSplitter::Item::event)
      builder.add_event(splitter.text(), splitter.position());
    else
      builder.add_member(splitter.key(), splitter.text());
  }
  if (!splitter.fault().empty() && builder.num_events() == 0)
    throw InputError{message(file.string(), ": no Chrome trace: ", splitter.fault(),
                             ", before any event; give a trace as PyTorch's profiler exports it")};
  if (!splitter.has_events())
    throw InputError{message(file.string(), ": no Chrome trace: JSON without \"traceEvents\"; ",
                             "give a trace as PyTorch's profiler exports it")};
  std::vector<Timeline> timelines = builder.finish();
  add_fault(timelines.front(), splitter, source);
  for (Timeline& timeline : timelines) {
    timeline.file = file.string();
    if (!timeline.format.empty()) continue;
    timeline.format = "Kineto";
    if (timeline.rank < 0) timeline.rank = rank_of_name(file).rank;
    if (timeline.rank < 0) timeline.rank = last_number_in(file.filename().string());
  }
  return timelines;
}

}  // namespace shardmark
