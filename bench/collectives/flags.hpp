#pragma once

#include "bench/collectives/options.hpp"
#include "bench/harness/command_line.hpp"

namespace shardmark::bench::collectives {

/// The options of shardmark-collectives. `options` must outlive the parse.
void add_flags(CommandLine& line, Options& options);
// Its parts (flags_run.cpp).
void add_run_flags(CommandLine& line, Options& options);
void add_device_flags(CommandLine& line, Options& options);
void add_measurement_flags(CommandLine& line, Options& options);
void add_output_flags(CommandLine& line, Options& options);

// What flags do with their values.
[[nodiscard]] CommandLine::Handler set_flag(bool& into, bool value);
[[nodiscard]] CommandLine::Handler set_count(int& into, int lowest);
[[nodiscard]] CommandLine::Handler set_bytes(std::int64_t& into);
[[nodiscard]] CommandLine::Handler set_number(double& into, double lowest);
[[nodiscard]] CommandLine::Handler set_path(std::string& into);

}  // namespace shardmark::bench::collectives
