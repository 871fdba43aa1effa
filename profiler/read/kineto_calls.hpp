#pragma once

#include "profiler/read/kineto_event.hpp"
#include "profiler/timeline.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace shardmark {

/// Which kernel is which communication: the calls and groups that a file describes, each once, and
/// where on the host they were made.
class KinetoCalls {
 public:
  /// The call that a kernel's own args describe; no_index if they describe none.
  [[nodiscard]] std::uint32_t add(const KinetoArgs& args);

  /// A record_param_comms operation: describes what is launched during it or names it by External
  /// id.
  void add_parameters(const KinetoArgs& args, std::uint32_t thread, const Span& time);
  /// An annotation of the communication library's caller, "nccl:all_reduce": knows the kind and
  /// perhaps the tensor, but not the group. Other annotations are passed over.
  void add_annotation(const std::string& name, const KinetoArgs& args, std::uint32_t thread,
                      const Span& time);
  /// distributedInfo's pg_config: adds to groups what the calls do not say.
  void add_group_config(std::string_view json);

  /// By the kernel's External id. Of files that give the correlation as External id, do not ask.
  [[nodiscard]] std::uint32_t find(std::uint64_t external_id) const;

  /// What happened on the host from the begin to the end of a call.
  struct HostCall {
    std::uint32_t thread;
    Span time;
    std::uint32_t call;
  };
  /// To be called once all is added, and before find_at().
  void sort();
  /// By when and on which thread a kernel was launched; null if not within a call. Valid as long as
  /// nothing is added.
  [[nodiscard]] const HostCall* find_at(std::uint32_t thread, std::int64_t launch_ns) const;

  [[nodiscard]] const std::vector<CommunicationCall>& calls() const { return calls_; }
  [[nodiscard]] const std::vector<ProcessGroup>& groups() const { return groups_; }

 private:
  std::uint32_t group_of(const KinetoArgs& args);
  std::uint32_t add_group(ProcessGroup group);
  std::uint32_t add_call(CommunicationCall call);

  std::vector<CommunicationCall> calls_;
  std::vector<ProcessGroup> groups_;
  std::map<std::string, std::uint32_t> call_of_key_, group_of_key_;
  std::unordered_map<std::uint64_t, std::uint32_t> call_of_external_;
  std::vector<HostCall> described_, annotated_;
};

}  // namespace shardmark
