// What becomes of traces that are truncated, damaged, odd, or none.

#include "tests/analyze/kineto_traces.hpp"

#include <zlib.h>

#include <iterator>

namespace shardmark {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

std::string refusal_of(const std::string& text) {
  try {
    static_cast<void>(read_kineto(write_trace(text)));
  } catch (const InputError& error) {
    return error.what();
  }
  return "not refused";
}

std::string packed(const std::string& text) {
  const std::string path = bench::scratch_folder() + "/packed.gz";
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

TEST(ReadKineto, OddEventsAreKeptAndCounted) {
  const Timeline timeline = read_trace(trace_of({
      event("kernel", "lost", "0", "0"),
      event("kernel", "long", "5000000", "20"),
      event("kernel", "next", "5000010.5", "1"),
      event("kernel", "negative", "5000030", "-4"),
      event("kernel", "in ns", "6000000000000", "1"),
      event("kernel", "in us", "6000000000", "1"),
  }));
  EXPECT_THAT(timeline.events, SizeIs(6));
  EXPECT_THAT(
      timeline.warnings,
      ElementsAre(HasSubstr("1 event lasts no time"), HasSubstr("1 event ends before it starts"),
                  AllOf(HasSubstr("1 event starts before the one ahead of it"),
                        HasSubstr("by up to 9.500 us")),
                  HasSubstr("in another unit")));
}

TEST(ReadKineto, BrokenEventsAreLeftOutAndNamed) {
  const Timeline timeline = read_trace(trace_of({
      event("kernel", "a", "1", "1"),
      event("kernel", "nan", "NaN", "1"),
      event("kernel", "infinite", "3", "Infinity"),
      event("kernel", "far", "99999999999999999", "1"),
      R"({"ph": "X" "cat": "kernel", "name": "b", "ts": 1})",
      event("kernel", "bad args", "5", "1", R"("device": 3, oops)"),
      event("cpu_op", "of no interest", "NaN", "1"),
      event("kernel", "z", "9", "1", R"("x": NaN, "stream": 8)"),
  }));
  ASSERT_THAT(timeline.events, SizeIs(3));
  EXPECT_EQ(name_of(timeline, 1), "bad args");
  EXPECT_EQ(timeline.events[1].device, 3);
  EXPECT_EQ(timeline.events[2].stream, 8);
  EXPECT_EQ(timeline.cut, "");
  EXPECT_THAT(
      timeline.faults,
      ElementsAre(AllOf(HasSubstr("4 events without readable text or time left out"),
                        HasSubstr("the first at byte "), HasSubstr(": ts NaN is no number"))));
  EXPECT_THAT(timeline.warnings, Contains(HasSubstr("1 event with args that are not JSON")));
}

std::string fault_of(const std::string& broken_event) {
  const Timeline timeline = read_trace(trace_of({event("kernel", "a", "1", "1"), broken_event}));
  EXPECT_THAT(timeline.events, SizeIs(1));
  EXPECT_THAT(timeline.faults, SizeIs(1));
  return timeline.faults.empty() ? "" : timeline.faults.front();
}

TEST(ReadKineto, ATimeThatCannotBeReadIsNamedWithItsUnit) {
  EXPECT_THAT(fault_of(event("kernel", "b", "1733961600123456789", "5000")),
              AllOf(HasSubstr("1 event without readable text or time left out, at byte "),
                    HasSubstr("ts 1733961600123456789 us is more than 73 years: is it in "
                              "nanoseconds?")));
  EXPECT_THAT(fault_of(event("kernel", "b", "5", "\"x\"")), HasSubstr("dur x is no number"));
  EXPECT_THAT(fault_of(event("kernel", "b", "5", "1e300")), HasSubstr("dur 1e300 us is more than"));
  EXPECT_THAT(fault_of(R"({"ph": "X", "cat": "kernel", "name": "b", "dur": 5})"),
              HasSubstr("it has no ts"));
  EXPECT_THAT(fault_of(R"({"ph": "X" "cat": "kernel", "name": "b", "ts": 1})"),
              HasSubstr("its text is not as that of an event"));
}

TEST(ReadKineto, AnEventThatLastsLongerThanAllOthersIsFlagged) {
  const auto warnings_with = [](const std::string& longest) {
    return read_trace(trace_of({event("kernel", "a", "10", "5"), event("kernel", "b", "20", "5"),
                                longest}))
        .warnings;
  };
  EXPECT_THAT(warnings_with(event("kernel", "nccl", "12", "3000000000", "", 0, 20)),
              ElementsAre(AllOf(HasSubstr("nccl on stream 20 lasts 3000000000.000 us, longer than "
                                          "all other work together spans"))));
  EXPECT_THAT(warnings_with(event("kernel", "c", "30", "15.001")), SizeIs(1));
  EXPECT_THAT(warnings_with(event("kernel", "c", "30", "15")), IsEmpty());
}

TEST(ReadKineto, ATruncatedFileGivesItsWholeEvents) {
  const std::string text =
      trace_of({event("kernel", "a", "1", "1"), event("kernel", "b", "3", "1")});
  const std::size_t end_of_first = text.find("}}") + 2, end_of_second = text.rfind("}}") + 2;
  for (std::size_t size = 0; size < text.size() - 2; ++size) {
    SCOPED_TRACE(size);
    if (size < end_of_first) {
      EXPECT_THAT(refusal_of(text.substr(0, size)), HasSubstr(message("truncated at byte ", size)));
      continue;
    }
    const Timeline timeline = read_trace(text.substr(0, size));
    EXPECT_THAT(timeline.events, SizeIs(size < end_of_second ? 1 : 2));
    EXPECT_THAT(timeline.cut, HasSubstr(message("truncated at byte ", size)));
  }
  EXPECT_THAT(read_trace(text).cut, IsEmpty());
}

TEST(ReadKineto, GzipIsKnownByItsFirstBytesAndMayBreakOff) {
  std::vector<std::string> events;
  for (int i = 0; i < 2000; ++i)
    events.push_back(event("kernel", message("k", i * 7919 % 1999), std::to_string(i * 3), "1"));
  const std::string text = trace_of(events), gzip = packed(text);
  EXPECT_THAT(read_trace(gzip).events, SizeIs(2000));
  const std::size_t half = gzip.size() / 2;
  const Timeline cut = read_trace(gzip.substr(0, half));
  EXPECT_GT(cut.events.size(), 500U);
  EXPECT_LT(cut.events.size(), 1500U);
  EXPECT_THAT(cut.cut, AllOf(HasSubstr("truncated at byte "),
                             HasSubstr(message("gzip data break off at byte ", half))));
  EXPECT_THAT(read_trace(gzip.substr(0, gzip.size() - 4)).faults,
              ElementsAre(HasSubstr("complete, but its gzip data break off")));
  std::string other_sum = gzip;
  other_sum[gzip.size() - 8] = static_cast<char>(~other_sum[gzip.size() - 8]);
  const Timeline wrong = read_trace(other_sum);
  EXPECT_THAT(wrong.events, SizeIs(2000));
  EXPECT_THAT(wrong.faults, ElementsAre(HasSubstr("complete, but its gzip data are damaged")));
  std::string damaged = gzip;
  damaged[half] = static_cast<char>(~damaged[half]);
  damaged[half + 1] = static_cast<char>(~damaged[half + 1]);
  // What it inflates to may be no JSON long before the checksum shows it.
  const Timeline bad = read_trace(damaged);
  EXPECT_GT(bad.events.size(), 100U);
  EXPECT_FALSE(bad.cut.empty() && bad.faults.empty());
  EXPECT_THAT(read_trace(gzip + packed(" ")).events, SizeIs(2000))
      << "two streams, one after the other";
  EXPECT_THAT(read_trace(gzip + std::string(100, '\0')).warnings, IsEmpty()) << "padding";
}

TEST(ReadKineto, RefusesWhatIsNoTraceAndSaysWhere) {
  EXPECT_THAT(refusal_of(""), HasSubstr("truncated at byte 0"));
  EXPECT_THAT(refusal_of("{\n {}}"), HasSubstr("byte 3: expected a key in quotes, found '{'"));
  EXPECT_THAT(refusal_of("{\"a\": 1}"), HasSubstr("without \"traceEvents\""));
  EXPECT_THAT(refusal_of("{\"traceEvents\": 7}"), HasSubstr("without \"traceEvents\""));
  EXPECT_THAT(refusal_of("[1, 2, 3]"), HasSubstr("byte 1: expected an event"));
  EXPECT_THAT(refusal_of(std::string(100'000, '[')), HasSubstr("byte 1: expected an event"));
  EXPECT_THAT(refusal_of("\x7f"
                         "ELF\x02\x01"),
              HasSubstr("byte 0: expected a Chrome trace"));
  EXPECT_THAT(refusal_of("\x1f\x8b\x08 nothing of the kind"), HasSubstr("gzip data are damaged"));
  EXPECT_THAT(refusal_of("[}"), Not(HasSubstr("not refused")));
  EXPECT_THROW(static_cast<void>(read_kineto("no/such/file.json")), InputError);
  EXPECT_THROW(static_cast<void>(read_kineto(bench::scratch_folder())), InputError);
}

TEST(ReadKineto, AFaultBetweenEventsEndsTheTraceThere) {
  const std::string text =
      trace_of({event("kernel", "a", "1", "1"), "garbage", event("kernel", "b", "3", "1")});
  const Timeline timeline = read_trace(text);
  EXPECT_THAT(timeline.events, SizeIs(1));
  EXPECT_THAT(timeline.cut, HasSubstr(message("not valid JSON at byte ", text.find("garbage"),
                                              ": expected an event")));
}

TEST(ReadKineto, NamesBecomeValidTextOnce) {
  const Timeline timeline = read_trace(
      trace_of({event("kernel", "a\xff", "1", "1"), event("kernel", "tab\there", "2", "1"),
                event("kernel", R"(caf\u00e9)", "3", "1"), event("kernel", "caf\xc3\xa9", "4", "1"),
                event("kernel", std::string(1 << 20, 'n'), "5", "1")}));
  EXPECT_EQ(name_of(timeline, 0), "a?");
  EXPECT_EQ(name_of(timeline, 1), "tab here");
  EXPECT_EQ(name_of(timeline, 2), "caf\xc3\xa9");
  EXPECT_EQ(timeline.events[2].name, timeline.events[3].name);
  EXPECT_EQ(name_of(timeline, 4).size(), std::size_t{1} << 20);
  EXPECT_THAT(timeline.names, SizeIs(4));
  EXPECT_THAT(timeline.warnings, ElementsAre(HasSubstr("2 names with characters")));
}

}  // namespace
}  // namespace shardmark
