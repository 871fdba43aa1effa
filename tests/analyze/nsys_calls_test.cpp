// What NCCL's NVTX ranges say of the kernels launched within them.

#include "core/error.hpp"
#include "profiler/read/read.hpp"
#include "tests/analyze/nsys_file.hpp"
#include "tests/bench/scratch.hpp"

#include <gmock/gmock.h>

namespace shardmark {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::uint64_t world = 0xabcd1234;
constexpr std::uint64_t init_schema = 16777218, message_schema = 16777223, send_schema = 16777225;

/// The bytes of an SQLite blob.
class Bytes {
 public:
  Bytes& add(std::uint64_t value, int width = 8) {
    constexpr char digits[] = "0123456789ABCDEF";
    for (int i = 0; i < width; ++i, value >>= 8U)
      hex_ += {digits[value >> 4U & 15U], digits[value & 15U]};
    return *this;
  }
  [[nodiscard]] std::string blob() const { return "X'" + hex_ + "'"; }

 private:
  std::string hex_;
};

/// A payload of 24 bytes behind its header.
Bytes payload(std::uint64_t schema) { return Bytes{}.add(1).add(schema).add(24).add(56); }
std::string message_of(std::uint64_t bytes) {
  return payload(message_schema).add(world).add(bytes).add(0).blob();
}
std::string message_to(std::uint64_t bytes, std::uint64_t peer) {
  return payload(send_schema).add(world).add(bytes).add(peer).blob();
}

class NsysCalls : public testing::Test {
 protected:
  NsysCalls() {
    file.create_tables();
    const auto entry = [&](std::uint64_t schema, int type, const char* name, const char* offset) {
      file.insert("NVTX_PAYLOAD_SCHEMA_ENTRIES", 1, schema, 0, type, message('\'', name, '\''),
                  offset);
    };
    entry(init_schema, 18, "NCCL communicator ID", "NULL");
    entry(init_schema, 5, "No. of ranks", "8");
    entry(message_schema, 18, "NCCL communicator ID", "NULL");
    entry(message_schema, 22, "Message size [bytes]", "8");
    entry(send_schema, 18, "NCCL communicator ID", "NULL");
    entry(send_schema, 22, "Message size [bytes]", "8");
    entry(send_schema, 5, "Peer rank", "16");
    kernel_name = file.text("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)");
  }
  /// NCCL registers the names of its ranges.
  void nccl(int start, int end, const std::string& name, const std::string& blob = "NULL",
            const std::string& json = "NULL") {
    file.insert("NVTX_EVENTS", start, end, 59, "NULL", file.text(name), global_id(100, 1), 1, json,
                "NULL", blob);
  }
  void init(int num_ranks) {
    nccl(1, 5, "ncclCommInitRankConfig",
         payload(init_schema)
             .add(world)
             .add(static_cast<std::uint64_t>(num_ranks), 4)
             .add(0, 4)
             .add(0)
             .blob());
  }
  /// A kernel that a call on thread 1 launches at `launch`.
  void launched(int launch, int thread = 1) {
    ++correlation;
    file.kernel(1000 * correlation, 1000 * correlation + 10, kernel_name, 0, 7, correlation);
    file.call(launch, launch + 1, correlation, 100, thread);
  }
  /// "kind in>out dtype group/size to peer" of every event.
  std::vector<std::string> calls() {
    std::vector<std::string> found;
    for (const Timeline& timeline : read_nsys(file.path()))
      for (const DeviceEvent& event : timeline.events) {
        if (event.call == no_index) {
          found.emplace_back("none");
          continue;
        }
        const CommunicationCall& call = timeline.calls.at(event.call);
        std::string text = message(call.kind, ' ', call.elements_in, '>', call.elements_out,
                                   call.dtype.empty() ? "" : " ", call.dtype);
        if (call.group != no_index)
          text += message(' ', timeline.groups.at(call.group).name, '/',
                          timeline.groups.at(call.group).size);
        if (call.peer >= 0) text += message(" to ", call.peer);
        found.push_back(text);
      }
    return found;
  }

  NsysFile file{bench::scratch_folder() + "/export.sqlite"};
  std::int64_t kernel_name{0};
  int correlation{0};
};

TEST_F(NsysCalls, SizesGrowWithTheCommunicatorAsTheCollectiveDoes) {
  init(4);
  int time = 100;
  for (const char* name :
       {"ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclBroadcast", "ncclAlltoAll"}) {
    nccl(time, time + 50, name, message_of(1024));
    launched(time + 20);
    time += 100;
  }
  EXPECT_THAT(calls(), ElementsAre("AllReduce 1024>1024 Byte communicator 0xabcd1234/4",
                                   "AllGather 1024>4096 Byte communicator 0xabcd1234/4",
                                   "ReduceScatter 4096>1024 Byte communicator 0xabcd1234/4",
                                   "Broadcast 1024>1024 Byte communicator 0xabcd1234/4",
                                   "AlltoAll 4096>4096 Byte communicator 0xabcd1234/4"));
}

TEST_F(NsysCalls, WithoutTheSizeOfTheCommunicatorOnlyOneSideIsKnown) {
  nccl(100, 150, "ncclAllGather", message_of(1024));
  launched(120);
  EXPECT_THAT(calls(), ElementsAre("AllGather 1024>-1 Byte communicator 0xabcd1234/0"));
}

TEST_F(NsysCalls, AGroupOfMessagesIsOneKernel) {
  nccl(100, 110, "ncclGroupStart");
  nccl(120, 130, "ncclSend", message_to(10, 1));
  nccl(140, 150, "ncclRecv", message_to(20, 1));
  nccl(160, 170, "ncclSend", message_to(30, 2));
  nccl(180, 190, "ncclRecv", message_to(40, 2));
  nccl(200, 250, "ncclGroupEnd");
  launched(230);
  EXPECT_THAT(calls(), ElementsAre("SendRecv 40>60 Byte communicator 0xabcd1234/0"));
}

TEST_F(NsysCalls, AMessageKnowsItsPeer) {
  nccl(100, 150, "ncclSend", message_to(64, 3));
  launched(120);
  EXPECT_THAT(calls(), ElementsAre("Send 64>64 Byte communicator 0xabcd1234/0 to 3"));
}

TEST_F(NsysCalls, NestedGroupsLaunchAtTheOutermostEnd) {
  nccl(100, 110, "ncclGroupStart");
  nccl(111, 112, "ncclGroupStart");
  nccl(120, 130, "ncclAllReduce", message_of(8));
  nccl(131, 132, "ncclGroupEnd");
  nccl(140, 150, "ncclAllReduce", message_of(16));
  nccl(200, 250, "ncclGroupEnd");
  launched(210);
  launched(220);
  EXPECT_THAT(calls(), ElementsAre("AllReduce 8>8 Byte communicator 0xabcd1234/0",
                                   "AllReduce 16>16 Byte communicator 0xabcd1234/0"));
}

TEST_F(NsysCalls, KernelsThatCannotBeToldApartShareAKindAndNoSize) {
  nccl(100, 110, "ncclGroupStart");
  for (int i = 0; i < 3; ++i) nccl(120 + i, 120 + i, "ncclAllReduce", message_of(8));
  nccl(200, 250, "ncclGroupEnd");
  launched(210);
  launched(220);
  EXPECT_THAT(calls(), ElementsAre("AllReduce -1>-1 communicator 0xabcd1234/0",
                                   "AllReduce -1>-1 communicator 0xabcd1234/0"));
}

TEST_F(NsysCalls, KernelsOutsideOfCallsHaveNone) {
  nccl(100, 150, "ncclAllReduce", message_of(8));
  nccl(300, 350, "ncclCommCount");
  launched(120, 2);  // another thread
  launched(200);     // later
  launched(320);     // in a call that communicates nothing
  EXPECT_THAT(calls(), ElementsAre("none", "none", "none"));
}

TEST_F(NsysCalls, PayloadsMayBeTextOrMissingOrBroken) {
  nccl(100, 150, "ncclAllReduce", "NULL",
       R"('{"NCCL communicator ID": 7, "Message size [bytes]": "512"}')");
  launched(120);
  nccl(200, 250, "ncclAllReduce");
  launched(220);
  nccl(300, 350, "ncclAllReduce", "X'00112233'");
  launched(320);
  nccl(400, 450, "ncclAllReduce", payload(message_schema).add(world).blob());  // size cut off
  launched(420);
  EXPECT_THAT(calls(), ElementsAre("AllReduce 512>512 Byte communicator 0x7/0", "AllReduce -1>-1",
                                   "AllReduce -1>-1", "AllReduce -1>-1 communicator 0xabcd1234/0"));
}

TEST_F(NsysCalls, RangesOfTheLibraryAreNoAnnotations) {
  nccl(100, 150, "ncclAllReduce", message_of(8));
  file.range(100, 200, "nccl:all_reduce");
  const std::vector<Timeline> timelines = read_nsys(file.path());
  ASSERT_THAT(timelines.at(0).ranges, SizeIs(1));
  EXPECT_EQ(timelines[0].names.at(timelines[0].ranges[0].name), "nccl:all_reduce");
  EXPECT_THAT(timelines[0].calls, IsEmpty());
}

}  // namespace
}  // namespace shardmark
