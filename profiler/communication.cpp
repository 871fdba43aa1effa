#include "profiler/communication.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <optional>
#include <regex>
#include <span>
#include <string_view>

namespace shardmark {
namespace {

// All texts here are in lower case and looked for anywhere in a name in lower case.

/// NCCL and those that are named after it: every generation of its kernels (ncclKernel_,
/// ncclDevKernel_, ncclSymk, ncclDevFunc) and RCCL's and Huawei's.
constexpr std::string_view nccl_names[] = {"nccl", "rccl", "hccl"};

/// Of the rule `wide`, without DeepEP's, which need more than a text.
constexpr std::string_view wide_names[] = {
    "allreduce",           "all_reduce", "allgather", "all_gather", "reducescatter",
    "reduce_scatter",      "alltoall",   "all_toall", "allto_all",  "all_to_all",
    "cross_device_reduce", "multimem",   "nvshmem",
};

/// What `automatic` knows beyond `wide`.
// clang-format off
constexpr std::string_view further_names[] = {
    "all2all",                        // several libraries
    "deep_ep::", "hybrid_ep::",       // DeepEP, of all versions
    "internode_ll::", "uccl::",       // its descendants, UCCL-EP
    "epdispatch", "epcombine",        // MORI
    "symmetric_memory::", "symm_mem", // PyTorch: signals and barriers
    "exchangesplitandoffset",         // PyTorch: all-to-all over NVSHMEM
    "lamport",                        // TensorRT-LLM, FlashInfer
    "moe_comm::",                     // TensorRT-LLM
    "userbuffers",                    // Transformer Engine
    "flashcomm",                      // FlashComm
    "msccl",                          // MSCCL, MSCCL++
    "oneccl", "ccl_kernel",           // oneCCL
    "hcom_",                          // HCCL on Ascend
    "ucc_tl_", "ucc_ec_", "ucc_ee_",  // UCC
};
// clang-format on

/// What a name may say without being communication: those are listed, not counted.
constexpr std::string_view suspicious_names[] = {
    "p2p",       "peer",     "broadcast",     "bcast",        "a2a",     "sendrecv",
    "send_recv", "one_shot", "oneshot",       "two_shot",     "twoshot", "dispatch",
    "combine",   "horovod",  "halo_exchange", "haloexchange",
};

/// Libraries and compilers whose kernels compute whatever else their names contain.
constexpr std::string_view compute_libraries[] = {
    "at::native::", "cub::",  "thrust::", "rocprim::", "cutlass",
    "cudnn",        "cublas", "gemm",     "flash_fwd", "flash_bwd",
};

/// The collective that a text tells; what is part of others comes after them.
struct Kind {
  std::string_view text, kind;
};
constexpr Kind kinds[] = {
    {"allreduce", "all_reduce"},
    {"all_reduce", "all_reduce"},
    {"cross_device_reduce", "all_reduce"},
    {"reducescatter", "reduce_scatter"},
    {"reduce_scatter", "reduce_scatter"},
    {"allgather", "all_gather"},
    {"all_gather", "all_gather"},
    {"alltoall", "all_to_all"},
    {"all_to_all", "all_to_all"},
    {"all_toall", "all_to_all"},
    {"allto_all", "all_to_all"},
    {"all2all", "all_to_all"},
    {"notify", "notify"},
    {"dispatch", "dispatch"},
    {"combine", "combine"},
    {"broadcast", "broadcast"},
    {"barrier", "barrier"},
    {"send", "send_recv"},
    {"recv", "send_recv"},
    {"gather", "gather"},
    {"scatter", "scatter"},
    {"reduce", "reduce"},
};

std::string lower(std::string_view text) {
  std::string result{text};
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

bool contains_any(std::string_view name, std::span<const std::string_view> texts) {
  return std::ranges::any_of(
      texts, [&](std::string_view text) { return name.find(text) != std::string_view::npos; });
}

/// Characters of \w; those beyond ASCII are taken for letters.
bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

constexpr std::string_view local_of_deep_ep = "get_dispatch_layout";

/// ep::(internode|intranode)\w*::(?!.*get_dispatch_layout)
bool is_deep_ep(std::string_view name) {
  for (const std::string_view text : {"ep::internode", "ep::intranode"})
    for (std::size_t at = name.find(text); at != std::string_view::npos;
         at = name.find(text, at + 1)) {
      std::string_view rest = name.substr(at + text.size());
      rest.remove_prefix(
          static_cast<std::size_t>(std::ranges::find_if_not(rest, is_word) - rest.begin()));
      if (!rest.starts_with("::")) continue;
      rest = rest.substr(0, rest.find('\n'));
      if (rest.find(local_of_deep_ep) == std::string_view::npos) return true;
    }
  return false;
}

bool is_wide(std::string_view name) {
  return contains_any(name, nccl_names) || contains_any(name, wide_names) || is_deep_ep(name);
}

/// Inductor names a kernel after the operations it fused, collectives next to it among them.
bool is_fused_by_compiler(std::string_view name) {
  return name.starts_with("triton_") && name.find("_fused_") != std::string_view::npos;
}

bool is_known(std::string_view name) {
  if (is_fused_by_compiler(name) || name.find(local_of_deep_ep) != std::string_view::npos)
    return false;
  return is_wide(name) || contains_any(name, further_names);
}

bool is_communication(std::string_view name, CommRule rule) {
  switch (rule) {
    case CommRule::automatic:
      return is_known(name);
    case CommRule::nccl:
      return contains_any(name, nccl_names);
    case CommRule::wide:
      return is_wide(name);
  }
  return false;
}

std::vector<std::regex> compiled(const std::vector<std::string>& patterns) {
  std::vector<std::regex> result;
  for (const std::string& pattern : patterns) try {
      result.emplace_back(pattern, std::regex::ECMAScript | std::regex::icase);
    } catch (const std::regex_error& error) {
      throw InputError{message("--comm-pattern ", pattern, " is no regular expression (",
                               error.what(), "); a plain part of a kernel's name works, too")};
    }
  return result;
}

/// std::regex goes as deep as the text is long.
constexpr std::size_t longest_for_regex = 2048;

/// What the names of a timeline say, each asked once.
class NameRule {
 public:
  NameRule(const std::vector<std::string>& names, CommRule rule,
           const std::vector<std::string>& patterns)
      : names_{names}, rule_{rule}, patterns_{compiled(patterns)}, known_(names.size()) {}

  /// `has_call`: the file has metadata of a communication for the kernel.
  bool is_communication(std::uint32_t name, bool has_call) {
    if (name == no_index) return has_call && rule_ == CommRule::automatic;
    std::optional<Answer>& answer = known_[name];
    if (!answer) answer = ask(names_[name]);
    return answer->by_name || (has_call && answer->with_call);
  }

 private:
  struct Answer {
    bool by_name{false}, with_call{false};
  };
  Answer ask(const std::string& name) const {
    const std::string text = lower(name);
    const auto end =
        name.begin() + static_cast<std::ptrdiff_t>(std::min(name.size(), longest_for_regex));
    const bool by_name = shardmark::is_communication(text, rule_) ||
                         std::ranges::any_of(patterns_, [&](const std::regex& pattern) {
                           return std::regex_search(name.begin(), end, pattern);
                         });
    const bool of_tensor_library = text.find("at::native::") != std::string::npos;
    return {by_name, rule_ == CommRule::automatic && !of_tensor_library};
  }

  const std::vector<std::string>& names_;
  CommRule rule_;
  std::vector<std::regex> patterns_;
  std::vector<std::optional<Answer>> known_;
};

/// `name` up to its arguments, whose types say nothing.
std::string_view without_arguments(std::string_view name) {
  constexpr std::string_view anonymous = "(anonymous namespace)";
  const std::size_t at = name.find(anonymous);
  return name.substr(0, name.find('(', at == std::string_view::npos ? 0 : at + anonymous.size()));
}

std::string kind_in(std::string_view text) {
  const std::string name = lower(text);
  for (const Kind& kind : kinds)
    if (name.find(kind.text) != std::string::npos) return std::string{kind.kind};
  return {};
}

bool is_suspicious(const std::string& name) {
  const std::string text = lower(without_arguments(name));
  if (is_fused_by_compiler(text)) return false;
  return is_known(text) ||
         (contains_any(text, suspicious_names) && !contains_any(text, compute_libraries));
}

}  // namespace

std::vector<WorkClass> classify(const Timeline& timeline, CommRule rule,
                                const std::vector<std::string>& patterns) {
  NameRule names{timeline.names, rule, patterns};
  std::vector<WorkClass> classes;
  classes.reserve(timeline.events.size());
  for (const DeviceEvent& event : timeline.events) {
    if (event.work != DeviceWork::kernel)
      classes.push_back(WorkClass::memory);
    else
      classes.push_back(names.is_communication(event.name, event.call != no_index)
                            ? WorkClass::communication
                            : WorkClass::compute);
  }
  return classes;
}

std::string kind_of_kernel(const std::string& name) { return kind_in(without_arguments(name)); }

std::string kind_of_call(const CommunicationCall& call) { return kind_in(call.kind); }

std::vector<std::string> suspicious_kernels(const Timeline& timeline,
                                            const std::vector<WorkClass>& classes) {
  std::vector<bool> is_compute(timeline.names.size());
  for (std::size_t i = 0; i < timeline.events.size(); ++i)
    if (const std::uint32_t name = timeline.events[i].name;
        name != no_index && classes[i] == WorkClass::compute)
      is_compute[name] = true;
  std::vector<std::string> result;
  for (std::size_t i = 0; i < timeline.names.size(); ++i)
    if (is_compute[i] && is_suspicious(timeline.names[i])) result.push_back(timeline.names[i]);
  return result;
}

}  // namespace shardmark
