#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace shardmark {

/// What an event of a Chrome trace is to the analysis, by its category (any case; both the names of
/// 2021 and today's) and name.
enum class EventKind {
  other,      ///< of no interest: most of a file
  kernel,     ///< kernel, mtia_ccp_events
  copy,       ///< gpu_memcpy, memcpy, mtia_ccp_events named dma...
  set,        ///< gpu_memset, memset
  runtime,    ///< cuda_runtime, cuda_driver, runtime, ...: a call that may launch device work
  step,       ///< ProfilerStep#N of user_annotation, cpu_op or operator
  range,      ///< any other user_annotation
  parameters  ///< record_param_comms: what PyTorch knows of a collective
};

/// Raw values of the event's members, strings with their quotes; empty where they are missing.
struct KinetoEvent {
  EventKind kind{EventKind::other};
  std::string_view name, pid, tid, ts, dur, args;
  bool broken{false};  ///< not a JSON object; the other fields are then not to be used
};
/// Stops reading as soon as the event turns out to be of no interest, so that such a one is not
/// checked. Only complete events ("ph": "X") are of interest.
[[nodiscard]] KinetoEvent read_kineto_event(std::string_view text);

/// Raw values of the args that matter; empty where they are missing. The names of what describes a
/// collective are PyTorch's (torch/csrc/profiler/util.h).
struct KinetoArgs {
  std::string_view correlation, external_id, device, stream, context;
  std::string_view graph, graph_node;  ///< not 0: the event is a node of a CUDA graph
  std::string_view collective, elements_in, elements_out, dtype, sequence, source, destination;
  std::string_view group_name, group_description, group_ranks, group_size, first_rank, rank_stride;
  std::string_view input_dims, input_type;
  bool broken{false};  ///< what comes after some place in them could not be read
};
[[nodiscard]] KinetoArgs read_kineto_args(std::string_view args);

/// A decimal number of microseconds in whole nanoseconds, rounded down, and what that left out.
struct Nanoseconds {
  std::int64_t whole{0};
  int picoseconds{0};  ///< 0 to 999
};
/// From the number's text (with or without quotes and exponent), so exact at any size. Nothing for
/// text that is no number and for times beyond 2^61 ns (73 years) either way, so that differences
/// of three of them still fit.
[[nodiscard]] std::optional<Nanoseconds> nanoseconds_of(std::string_view value);
/// The sum, rounded down to a whole nanosecond after it is taken.
[[nodiscard]] std::int64_t sum_ns(const Nanoseconds& a, const Nanoseconds& b);

/// A whole number (with or without quotes), or the one that a text like "stream 7" ends in.
[[nodiscard]] std::optional<std::int64_t> integer_of(std::string_view value);
/// As it is used to find the same number again: those beyond 64 bits and text give nothing.
[[nodiscard]] std::optional<std::uint64_t> id_of(std::string_view value);

}  // namespace shardmark
