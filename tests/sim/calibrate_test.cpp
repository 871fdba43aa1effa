#include "sim/calibrate.hpp"

#include "sim/cost_comm.hpp"
#include "sim/cost_compute.hpp"
#include "tests/sim/machines.hpp"
#include "tests/support/refusal.hpp"

#include <gmock/gmock.h>

#include <sstream>

namespace shardmark::test {
namespace {

using testing::HasSubstr;

const std::string header =
    "schema_version,tp,dtype,rank,path,op,kernel,kind,lane,count,total_us,flops,bytes_memory,"
    "bytes_wire\n";
const std::string run_json =
    R"({"program": "shardmark-tp", "run_id": "today", "oversubscribed": false,
        "ranks": [{"host": "a"}, {"host": "a"}, {"host": "a"}],
        "machine": {"cpu": "a made-up one"}})";

/// kernels.csv as a machine would have given it: three calls per place, the last rank is the
/// slowest to compute, and the first waits in communication for it.
class Kernels {
 public:
  explicit Kernels(const Machine& machine) : machine_{machine} {}

  void add(int tp, const Op& op) {
    constexpr int count = 3;
    const bool communicates = kind_of(op) == OpKind::communication;
    const double time_us = communicates ? communication_us(machine_, op) : compute_us(machine_, op);
    const Work done = work(op);
    ++place_;
    for (int rank = 0; rank < tp; ++rank) {
      const double factor = communicates ? 1 + 0.5 * (tp - 1 - rank) : 1 - 0.1 * (tp - 1 - rank);
      text_ << "1," << tp << ",f32," << rank << ",\"step/block" << place_ << "\"," << name_of(op)
            << ",k," << (communicates ? "communication,tp," : "compute,compute,") << count << ','
            << count * time_us * factor << ',' << count * done.flops << ','
            << count * done.bytes_memory << ',' << count * done.bytes_wire << '\n';
    }
  }
  [[nodiscard]] std::string csv() const { return header + text_.str(); }

 private:
  const Machine& machine_;
  std::ostringstream text_;
  int place_{0};
};

Tensor square(std::uint32_t buffer, std::int64_t side) {
  return {.buffer = buffer, .shape = {side, side}, .row_stride = side};
}
Matmul matmul_of(std::int64_t side) { return {square(1, side), square(2, side), square(3, side)}; }
Add add_of(std::int64_t side) { return {square(1, side), square(2, side), square(3, side)}; }
AllReduce reduce_of(std::int64_t side, int tp) { return {square(1, side), {Axis::tp, 0, 1, tp}}; }

/// The round machine without what calibration cannot tell apart from the ops' own times.
Machine plain_machine() {
  Machine machine = round_machine(8);
  machine.launch_overhead_us.value = 0;
  machine.rates = {{"matmul", "f32", Rates::Of::flops, {{1e5, 5}, {1e10, 90}}, "made up"}};
  return machine;
}

Machine calibrated(const Machine& real) {
  Kernels kernels{real};
  for (const std::int64_t side : {64, 200, 700, 1500}) {
    kernels.add(1, matmul_of(side));
    kernels.add(3, matmul_of(side));
    kernels.add(3, add_of(side));
    kernels.add(2, reduce_of(side, 2));
    kernels.add(3, reduce_of(side, 3));
  }
  return calibrate("mine", kernels.csv(), run_json);
}

TEST(Calibrate, GivesTheMachineBackThatMadeTheTimes) {
  const Machine real = plain_machine();
  const Machine found = calibrated(real);
  for (const std::int64_t side : {64, 200, 700, 1500}) {
    EXPECT_NEAR(compute_us(found, matmul_of(side)) / compute_us(real, matmul_of(side)), 1, 1e-4);
    EXPECT_NEAR(compute_us(found, add_of(side)) / compute_us(real, add_of(side)), 1, 1e-4);
  }
  // Between the measured sizes the table is interpolated.
  EXPECT_NEAR(compute_us(found, matmul_of(400)) / compute_us(real, matmul_of(400)), 1, 1e-3);
  EXPECT_NEAR(found.memory_GBps.value, 1000, 0.1);
  EXPECT_NEAR(found.peak_tflops(DType::f32), real.rates[0].at(2 * 1500. * 1500 * 1500), 0.01);
  const Link& link = found.inside.of("all_reduce");
  EXPECT_NEAR(link.latency_us.value, 2, 1e-3);
  EXPECT_NEAR(link.bandwidth_GBps.value, 100, 0.1);
  EXPECT_NEAR(communication_us(found, reduce_of(1000, 3)),
              communication_us(real, reduce_of(1000, 3)), 1e-2);
  EXPECT_EQ(found.ranks_per_node.value, 3);
}

TEST(Calibrate, TheResultIsAMachineFile) {
  const std::string text = to_json(calibrated(plain_machine()));
  EXPECT_EQ(to_json(parse_machine(text, "mine.json")), text);
  EXPECT_THAT(text, HasSubstr("measured by shardmark-tp run today"));
  EXPECT_THAT(text, HasSubstr("a made-up one"));
}

TEST(Calibrate, RanksShareTheHostsMemory) {
  const Machine real = plain_machine();
  Kernels kernels{real};
  kernels.add(1, matmul_of(64));
  kernels.add(1, add_of(64));
  kernels.add(2, reduce_of(64, 2));
  std::string run = run_json;
  run.replace(run.find("a made-up one\""), 14, "a made-up one\", \"memory_bytes\": 48000000000");
  const Machine machine = calibrate("mine", kernels.csv(), run);
  ASSERT_TRUE(machine.memory_GB.has_value());
  EXPECT_DOUBLE_EQ(machine.memory_GB->value, 16) << "of three ranks";
  EXPECT_THAT(machine.memory_GB->source, HasSubstr("share of the host's memory"));
  EXPECT_FALSE(calibrate("mine", kernels.csv(), run_json).memory_GB.has_value());
}

TEST(Calibrate, SizesCloseTogetherAreOnePointAndTheMedianCounts) {
  const auto row = [](int place, double flops, double total_us) {
    std::ostringstream text;
    text << "1,1,f32,0,p" << place << ",matmul,k,compute,compute,1," << total_us << ',' << flops
         << ",8,0\n";
    return text.str();
  };
  const std::string csv = header + row(1, 1e6, 1) + row(2, 1.01e6, 2.02) + row(3, 1.02e6, 10.2) +
                          row(4, 2e6, 1) + "1,1,f32,0,q,add,k,compute,compute,1,1,0,12,0\n" +
                          "1,2,f32,0,r,all_reduce,k,communication,tp,1,4,0,0,1000\n";
  const Machine machine = calibrate("mine", csv, run_json);
  const Rates* table = machine.find_rates("matmul", DType::f32, Rates::Of::flops);
  ASSERT_EQ(table->points.size(), 2U);
  EXPECT_NEAR(table->points[0].size, 1.01e6, 1);
  EXPECT_NEAR(table->points[0].rate, 0.5, 1e-12);
}

TEST(Calibrate, CommunicationBesideComputeSaysNothingAboutLinks) {
  const std::string csv =
      "tp,dtype,overlap,rank,path,op,kernel,kind,lane,count,total_us,flops,"
      "bytes_memory,bytes_wire\n"
      "1,f32,false,0,p,matmul,k,compute,compute,1,1,1000,8,0\n"
      "1,f32,false,0,q,add,k,compute,compute,1,1,0,12,0\n"
      "2,f32,false,0,r,all_reduce,k,communication,tp,1,20,0,0,1000000\n"
      "2,f32,true,0,r,all_reduce,k,communication,tp,1,900,0,0,1000000\n";
  const Machine machine = calibrate("mine", csv, run_json);
  EXPECT_NEAR(machine.inside.of("all_reduce").bandwidth_GBps.value, 50, 1e-9);
  EXPECT_EQ(machine.overlap.value, 0);
}

TEST(Calibrate, SizesMustBeFarApartToTellALatency) {
  const std::string base = header + "1,1,f32,0,p,matmul,k,compute,compute,1,1,1000,8,0\n" +
                           "1,1,f32,0,q,add,k,compute,compute,1,1,0,12,0\n" +
                           "1,2,f32,0,r,all_reduce,k,communication,tp,1,120,0,0,1000000\n";
  const auto latency_us = [&](const std::string& second) {
    return calibrate("mine", base + second, run_json).inside.of("all_reduce").latency_us.value;
  };
  EXPECT_EQ(latency_us("1,2,f32,0,s,all_reduce,k,communication,tp,1,320,0,0,3000000\n"), 0);
  // 2 x 10 us, and 100 us per MB.
  EXPECT_NEAR(latency_us("1,2,f32,0,s,all_reduce,k,communication,tp,1,2020,0,0,20000000\n"), 10,
              1e-6);
}

TEST(Calibrate, ANegativeLatencyIsLeftOut) {
  const std::string csv = header + "1,1,f32,0,p,matmul,k,compute,compute,1,1,1000,8,0\n" +
                          "1,1,f32,0,q,add,k,compute,compute,1,1,0,12,0\n" +
                          "1,2,f32,0,r,all_reduce,k,communication,tp,1,1,0,0,1000000\n" +
                          "1,2,f32,0,s,all_reduce,k,communication,tp,1,32,0,0,16000000\n";
  const Link link = calibrate("mine", csv, run_json).inside.of("all_reduce");
  EXPECT_EQ(link.latency_us.value, 0);
  EXPECT_GT(link.bandwidth_GBps.value, 500);
  EXPECT_LT(link.bandwidth_GBps.value, 1000);
}

/// What runs of shardmark-pp and -cp have otherwise: lanes of messages, and groups of other sizes
/// than the degree of their lane.
TEST(Calibrate, ReadsPipelinesAndContextParallelism) {
  const std::string columns =
      "pp,cp,dp,overlap,dtype,rank,path,op,kernel,kind,lane,group_size,count,total_us,flops,"
      "bytes_memory,bytes_wire\n";
  const std::string compute =
      "1,1,1,false,f32,0,step/0F0/block0,matmul,k,compute,compute,1,1,1,1000,8,0\n"
      "1,1,1,false,f32,0,step/0F0/block0,add,k,compute,compute,1,1,1,0,12,0\n";
  const auto message_of = [](const std::string& path, int rank, const std::string& lane,
                             double time_us, double bytes) {
    return "2,1,1,false,f32," + std::to_string(rank) + ',' + path + ",send_recv,k,communication," +
           lane + ",2,1," + std::to_string(time_us) + ",0,0," + std::to_string(bytes) + '\n';
  };
  // 5 us and 100 us per MB; a receive that waits, and a send that is polled from a long kernel.
  const std::string messages = message_of("step/0SEND_F0", 0, "pp_fwd_send", 105, 1e6) +
                               message_of("step/1RECV_F0", 1, "pp_fwd_recv", 9000, 1e6) +
                               message_of("step/0SEND_F1", 0, "pp_fwd_send", 4000, 1e6) +
                               message_of("step/1SEND_B0", 1, "pp_bwd_send", 2005, 20e6) +
                               message_of("step/0RECV_B0", 0, "pp_bwd_recv", 8000, 20e6);
  const Machine of_pipeline = calibrate("mine", columns + compute + messages, run_json);
  EXPECT_NEAR(of_pipeline.inside.of("send_recv").latency_us.value, 5, 1e-6);
  EXPECT_NEAR(of_pipeline.inside.of("send_recv").bandwidth_GBps.value, 10, 1e-6);
  // The two ranks that hold a stage of DualPipe, and a Ulysses group of 2 inside of cp 4.
  const std::string groups =
      "2,1,1,false,f32,0,step/sum_gradients,all_reduce,k,communication,dp,2,1,20,0,0,1000000\n"
      "1,4,1,false,f32,0,step/ulysses,all_to_all,k,communication,cp,2,1,40,0,0,1000000\n";
  const Machine of_groups = calibrate("mine", columns + compute + groups, run_json);
  EXPECT_NEAR(of_groups.inside.of("all_reduce").bandwidth_GBps.value, 50, 1e-6);
  EXPECT_NEAR(of_groups.inside.of("all_to_all").bandwidth_GBps.value, 25, 1e-6);
}

/// Without the column of group sizes the degree of the lane's axis is taken.
TEST(Calibrate, OlderFilesOfPipelinesHaveTheDegree) {
  const std::string columns =
      "pp,dtype,rank,path,op,kernel,kind,lane,count,total_us,flops,bytes_memory,bytes_wire\n";
  const std::string csv = columns + "1,f32,0,p,matmul,k,compute,compute,1,1,1000,8,0\n" +
                          "1,f32,0,q,add,k,compute,compute,1,1,0,12,0\n" +
                          "3,f32,0,r,send_recv,k,communication,pp_fwd_send,1,20,0,0,1000000\n";
  EXPECT_NEAR(calibrate("mine", csv, run_json).inside.of("send_recv").bandwidth_GBps.value, 50,
              1e-6);
}

std::string refusal(const std::string& csv, const std::string& run) {
  return test::refusal([&] { return calibrate("mine", csv, run); });
}

TEST(Calibrate, SaysWhatIsMissingAndWhatToRun) {
  const std::string matmul = "1,1,f32,0,p,matmul,k,compute,compute,1,1,1000,8,0\n";
  const std::string add = "1,1,f32,0,q,add,k,compute,compute,1,1,0,12,0\n";
  EXPECT_THAT(refusal("op,rank\n", "{}"), HasSubstr("key 'oversubscribed' not found"));
  EXPECT_THAT(refusal("op,rank\n", "{"), HasSubstr("run.json is not that of a run"));
  EXPECT_THAT(refusal("op,rank\nmatmul,0\n", run_json),
              HasSubstr("no column 'count'; it must be that of a run of shardmark-tp, -cp or -pp"));
  EXPECT_THAT(refusal(header + "1,2\n", run_json), HasSubstr("line 2: 2 cells, 14 columns"));
  EXPECT_THAT(refusal(header + "1,1,f32,0,p,matmul,k,compute,compute,1,-1,1000,8,0\n", run_json),
              HasSubstr("line 2: total_us is '-1'; it must be a number, 0 or more"));
  EXPECT_THAT(refusal(header, run_json), HasSubstr("no compute op"));
  EXPECT_THAT(refusal(header + matmul, run_json), HasSubstr("no memory bandwidth"));
  EXPECT_THAT(refusal(header + add, run_json), HasSubstr("no peak"));
  EXPECT_THAT(refusal(header + matmul + add, run_json),
              HasSubstr("with --tp 2 (or --cp 2, or --pp 2) among its degrees"));
  std::string crowded = run_json;
  crowded.replace(crowded.find("false"), 5, "true");
  EXPECT_THAT(refusal(header + matmul + add, crowded), HasSubstr("a core per rank"));
  std::string mistyped = run_json;
  mistyped.replace(mistyped.find("false"), 5, "\"no\"");
  EXPECT_THAT(refusal(header + matmul + add, mistyped), HasSubstr("must be boolean"));
  const std::string reduce = "1,2,f32,0,r,all_reduce,k,communication,tp,1,4,0,0,1000\n";
  std::string spread = run_json;
  spread.replace(spread.rfind("\"a\""), 3, "\"b\"");
  EXPECT_THAT(refusal(header + matmul + add + reduce, spread), HasSubstr("ranks on a and b"));
}

}  // namespace
}  // namespace shardmark::test
