#pragma once

#include "bench/harness/options.hpp"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace shardmark::bench {

/// The command line of a program: options with help, unit, default and example, in groups.
class CommandLine {
 public:
  /// What --help says around the options.
  struct Program {
    std::string name, description, examples;
  };
  explicit CommandLine(const Program& program);
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  ~CommandLine();

  /// Called with the option's name and its value, or "" for a flag.
  using Handler = std::function<void(std::string_view option, const std::string& text)>;
  struct Help {
    std::string type;      ///< "N,..." or "DIR"; empty for a flag
    std::string about;     ///< what it does, with the unit
    std::string fallback;  ///< the default; empty for a flag
    std::string example;   ///< the value in the example; empty for a flag
  };
  /// Starts a group; the options that follow belong to it.
  void group(std::string name) { group_ = std::move(name); }
  /// `name` is "--iters" or "-n,--iters"; the handler is told the long one.
  void add(const std::string& name, const Help& help, Handler handler);
  /// The same for one that may be given several times, each time with one value.
  void add_repeatable(const std::string& name, const Help& help, Handler handler);
  /// An argument without a name; `about` is its help.
  void add_positional(const std::string& name, const std::string& about, Handler handler);
  /// Any number of them; the handler is called for each.
  void add_positionals(const std::string& name, const std::string& about, Handler handler);
  /// A flag that makes the program print `text()` instead of running.
  void add_print(const std::string& name, const std::string& about,
                 std::function<std::string()> text);

  /// Calls the handlers. Returns the text to print instead of running, mostly none. Throws
  /// InputError.
  [[nodiscard]] std::string parse(const std::vector<std::string>& arguments);

 private:
  /// Remembers the names, and gives the long one and the help text.
  [[nodiscard]] std::pair<std::string, std::string> describe(const std::string& names,
                                                             const Help& help);
  /// Throws if an option occurs more than once.
  void fail_repeated(const std::vector<std::string>& arguments) const;
  [[noreturn]] void fail_unknown(const std::string& argument) const;

  std::unique_ptr<CLI::App> app_;
  std::string group_, print_;
  std::vector<std::string> names_;
  std::vector<std::string> lists_;       ///< of the names: take "A,B"
  std::vector<std::string> repeatable_;  ///< of the names: may be given several times
};

/// The texts of shardmark-tp.
[[nodiscard]] CommandLine::Program layers_program();
// The options of the programs that measure layers, by group. `options` must outlive the parse, and
// its `tool` says for which program the texts are.
void add_shape_options(CommandLine& line, Options& options);  ///< shardmark-tp
// In the group of shapes:
void add_model_option(CommandLine& line, Options& options);
void add_head_options(CommandLine& line, Options& options);  ///< heads that hidden is split into
void add_layer_kind_options(CommandLine& line, Options& options);
void add_dtype_option(CommandLine& line, Options& options);
void add_parallel_options(CommandLine& line, Options& options);  ///< shardmark-tp
void add_launch_options(CommandLine& line, Options& options);    ///< in the same group
void add_measurement_options(CommandLine& line, Options& options);
/// Limits of the verdicts that need no rates; `has_stages`: also that of bubbles.
void add_limit_options(CommandLine& line, VerdictThresholds& limits, bool has_stages);
void add_output_options(CommandLine& line, Options& options);
void add_prediction_options(CommandLine& line, Options& options);
void add_testing_options(CommandLine& line, Options& options);

}  // namespace shardmark::bench
