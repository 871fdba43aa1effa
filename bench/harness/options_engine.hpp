#pragma once

#include "bench/harness/command_line.hpp"
#include "bench/harness/engine.hpp"
#include "bench/harness/launch.hpp"

#include <optional>

namespace shardmark::bench {

// Options of all programs about what a rank computes on. What they fill must outlive the parse.

/// --transport: how the ranks start, or how bytes go between GPUs.
void add_transport_options(CommandLine& line, EngineOptions& engine,
                           std::optional<TransportKind>& transport);
/// The group of devices. `only_records` is set by --backend record.
void add_engine_options(CommandLine& line, EngineOptions& engine, bool& only_records);
/// --peak.
void add_peak_option(CommandLine& line, EngineOptions& engine);

}  // namespace shardmark::bench
