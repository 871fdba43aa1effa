// Which kernels communicate, by rule, and which collective a name tells.

#include "profiler/communication.hpp"

#include "core/error.hpp"
#include "tests/analyze/hand_made.hpp"

#include <gmock/gmock.h>

#include <random>
#include <regex>

namespace shardmark {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

bool communicates(const std::string& name, CommRule rule,
                  const std::vector<std::string>& patterns = {}) {
  return classify(HandMade{}.kernel(name, 0, 1).made(), rule, patterns).front() ==
         WorkClass::communication;
}

struct Known {
  std::string name, kind;
  bool nccl{false}, wide{false}, automatic{true};
};

std::vector<Known> known_names() {
  return {
      {"ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
       "all_reduce", true, true},
      {"ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", "send_recv", true, true},
      {"ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
       "broadcast", true, true},
      {"ncclKernel_Reduce_RING_LL_Sum_float(ncclDevComm*)", "reduce", true, true},
      {"ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_gather", true,
       true},
      {"ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
       "reduce_scatter", true, true},
      {"ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16", "all_reduce", true, true},
      {"ncclDevFunc_AllGather_NVLS_SIMPLE()", "all_gather", true, true},
      {"void rcclGenericKernel<1, false>(rcclDevKernelArgs)", "", true, true},
      {"ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "", true, true},
      {"hcclAicpuKernel", "", true, true},
      {"void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
       "all_reduce", false, true},
      {"void one_shot_all_reduce_kernel<float>()", "all_reduce", false, true},
      {"void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)", "all_reduce",
       false, true},
      {"void tensorrt_llm::kernels::twoShotAllReduceKernel<half>(Params)", "all_reduce", false,
       true},
      {"void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<0>()",
       "all_reduce", false, true},
      {"nvshmemi_proxy_quiet_kernel", "", false, true},
      {"void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)", "dispatch", false, true},
      {"void deep_ep::internode::combine<8, __nv_bfloat16>(int4*)", "combine", false, true},
      {"void deep_ep::internode_ll::dispatch<true, 7168>(void*)", "dispatch", false, true},
      {"void deep_ep::intranode::notify_dispatch<8>(int const*)", "notify", false, true},
      {"void allToAllV(void*)", "all_to_all", false, true},
      {"void hybrid_ep::dispatch_kernel<1>(P)", "dispatch", false, false},
      {"void userbuffers_fp16_sum_inplace_gpu_rr(int)", "", false, false},
      {"void moe_comm::moeAll2AllKernel(P)", "all_to_all", false, false},
      {"mscclppExecutionKernel", "", false, false},
      {"EpDispatchIntraNodeKernel_bf16", "dispatch", false, false},
      {"c10d::symmetric_memory::barrier_kernel(unsigned int**)", "barrier", false, false},
  };
}

std::vector<std::string> computing_names() {
  return {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>()",
          "void at::native::vectorized_gather_kernel<16, long>(char*, char*)",
          "void deep_ep::layout::get_dispatch_layout<256, 4, 8>(long const*)",
          "void deep_ep::intranode::get_dispatch_layout<256>(long const*)",
          "splitKreduce_kernel<float>",
          "void moe_common_kernel<half>(Params)",
          "sm90_xmma_gemm_bf16bf16_bf16f32",
          "void fft2d_r2c_32x32<float, false, 5u, true>(float2*)",
          ""};
}

TEST(Communication, KernelsOfEveryLibraryAreKnownByName) {
  for (const Known& known : known_names()) {
    SCOPED_TRACE(known.name);
    EXPECT_EQ(communicates(known.name, CommRule::nccl), known.nccl);
    EXPECT_EQ(communicates(known.name, CommRule::wide), known.wide);
    EXPECT_EQ(communicates(known.name, CommRule::automatic), known.automatic);
    EXPECT_EQ(kind_of_kernel(known.name), known.kind);
  }
  for (const std::string& name : computing_names())
    for (const CommRule rule : {CommRule::automatic, CommRule::nccl, CommRule::wide})
      EXPECT_FALSE(communicates(name, rule)) << name;
}

/// The rules as regular expressions, as the tables of recorded traces define them.
TEST(Communication, NcclAndWideAreTheRegularExpressions) {
  const std::regex nccl{"nccl|rccl|hccl", std::regex::icase};
  const std::regex wide{
      "nccl|rccl|hccl|ep::(internode|intranode)\\w*::(?!.*get_dispatch_layout)|all_?reduce|"
      "all_?gather|reduce_?scatter|all_?to_?all|cross_device_reduce|multimem|nvshmem",
      std::regex::icase};
  std::vector<std::string> names = computing_names();
  for (const Known& known : known_names()) names.push_back(known.name);
  for (const char* name :
       {"AllToAll", "all_toall", "ALLTO_ALL", "all__reduce", "Reduce_Scatter", "reduce scatter",
        "ep::internode", "ep::internode::", "deep_EP::internode_ll2::\nget_dispatch_layout",
        "ep::intranode x::ep::internode_a::b",
        "ep::intranode::get_dispatch_layout"
        "\nep::intranode::combine"})
    names.emplace_back(name);
  std::mt19937 random{11};
  for (std::size_t i = names.size(); i-- > 0;)
    for (int change = 0; change < 40 && !names[i].empty(); ++change) {
      std::string name = names[i];
      const std::size_t at = random() % name.size();
      if (change % 2 == 0)
        name.erase(at, 1 + random() % 2);
      else
        name[at] = static_cast<char>(std::toupper(static_cast<unsigned char>(name[at])));
      names.push_back(std::move(name));
    }
  for (const std::string& name : names) {
    EXPECT_EQ(communicates(name, CommRule::nccl), std::regex_search(name, nccl)) << name;
    EXPECT_EQ(communicates(name, CommRule::wide), std::regex_search(name, wide)) << name;
  }
}

TEST(Communication, MetadataDecidesBeforeTheName) {
  const Timeline timeline =
      HandMade{}
          .kernel("some_vendors_kernel", 0, 1)
          .call("allreduce")
          .kernel("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float>()", 1, 2)
          .call("allgather")
          .copy(2, 3)
          .call("allreduce")
          .made();
  EXPECT_THAT(classify(timeline, CommRule::automatic, {}),
              ElementsAre(WorkClass::communication, WorkClass::compute, WorkClass::memory));
  EXPECT_THAT(classify(timeline, CommRule::wide, {}),
              ElementsAre(WorkClass::compute, WorkClass::compute, WorkClass::memory));
}

TEST(Communication, CompilersNameFusedKernelsAfterCollectives) {
  const std::string name = "triton_poi_fused_all_gather_into_tensor_wait_tensor_3";
  EXPECT_FALSE(communicates(name, CommRule::automatic));
  EXPECT_TRUE(communicates(name, CommRule::wide));
}

TEST(Communication, PatternsAddToEveryRule) {
  for (const CommRule rule : {CommRule::automatic, CommRule::nccl, CommRule::wide}) {
    EXPECT_TRUE(communicates("MyRingKernel", rule, {"^myring"}));
    EXPECT_FALSE(communicates("NotMyRingKernel", rule, {"^myring", "other"}));
  }
  try {
    (void)communicates("a", CommRule::nccl, {"ok", "(open"});
    FAIL() << "no error";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--comm-pattern (open"));
  }
}

TEST(Communication, ANameOfAMegabyteIsNoTrouble) {
  const std::string name(1U << 20U, 'a');
  EXPECT_FALSE(communicates(name, CommRule::automatic, {"^(a|b)*c"}));
  EXPECT_TRUE(communicates(name + "nccl", CommRule::automatic));
}

TEST(Communication, CallsHaveTheSameKinds) {
  const std::vector<std::pair<std::string, std::string>> kinds{
      {"allreduce", "all_reduce"},
      {"_allgather_base", "all_gather"},
      {"all_to_allv", "all_to_all"},
      {"_reduce_scatter_base", "reduce_scatter"},
      {"alltoall", "all_to_all"},
      {"reduce_scatter_tensor_coalesced", "reduce_scatter"},
      {"send", "send_recv"},
      {"recv", "send_recv"},
      {"broadcast", "broadcast"},
      {"reduce", "reduce"},
      {"gather", "gather"},
      {"scatter", "scatter"},
      {"barrier", "barrier"},
      {"coalesced", ""},
      {"", ""}};
  for (const auto& [word, kind] : kinds) {
    CommunicationCall call;
    call.kind = word;
    EXPECT_EQ(kind_of_call(call), kind) << word;
  }
}

TEST(Suspicious, NamesLikeCommunicationAreListedOnce) {
  const Timeline timeline = HandMade{}
                                .kernel("my_peer_exchange", 0, 1)
                                .kernel("my_peer_exchange", 2, 3)
                                .kernel("gemm_with_broadcast", 3, 4)
                                .kernel("void at::native::broadcast_add<float>()", 4, 5)
                                .kernel("ncclDevKernel_AllReduce", 5, 6)
                                .kernel("triton_poi_fused_all_gather_0", 6, 7)
                                .kernel("void scale<p2p_tag>(p2p*)", 7, 8)
                                .made();
  EXPECT_THAT(suspicious_kernels(timeline, classify(timeline, CommRule::automatic, {})),
              ElementsAre("my_peer_exchange", "void scale<p2p_tag>(p2p*)"));
}

TEST(Suspicious, ARuleThatKnowsLessListsMore) {
  const Timeline timeline = HandMade{}.kernel("one_shot_all_reduce_kernel", 0, 1).made();
  EXPECT_THAT(suspicious_kernels(timeline, classify(timeline, CommRule::nccl, {})),
              ElementsAre("one_shot_all_reduce_kernel"));
  EXPECT_THAT(suspicious_kernels(timeline, classify(timeline, CommRule::wide, {})), IsEmpty());
}

}  // namespace
}  // namespace shardmark
