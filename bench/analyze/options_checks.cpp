#include "bench/analyze/options.hpp"
#include "core/error.hpp"
#include "layers/presets.hpp"

#include <initializer_list>
#include <set>

namespace shardmark::bench::analyze {
namespace {

/// Names of the options that were given.
std::set<std::string> names_in(const std::vector<std::string>& arguments) {
  std::set<std::string> names;
  for (const std::string& argument : arguments)
    if (argument.starts_with("--")) names.insert(argument.substr(0, argument.find('=')));
  return names;
}

/// The given ones among `options`: "--csv, --out".
std::string given_of(const std::set<std::string>& given,
                     std::initializer_list<const char*> options) {
  std::string list;
  for (const char* const option : options)
    if (given.contains(option)) list += message(list.empty() ? "" : ", ", option);
  return list;
}

void check_diff(const Options& options, const std::set<std::string>& given) {
  if (options.inputs.size() != 2)
    throw InputError{message("--diff compares two inputs, but there ",
                             options.inputs.size() == 1 ? "is " : "are ", options.inputs.size(),
                             "; quote a glob: --diff 'before/*.json' 'after/*.json'")};
  const std::string idle = given_of(
      given, {"--csv", "--out", "--merged-trace", "--axis-of", "--model", "--tokens", "--seq",
              "--flops", "--peak-tflops", "--dtype", "--num-devices", "--limit-imbalance",
              "--limit-bubble", "--limit-communication", "--warn-communication"});
  if (!idle.empty())
    throw InputError{message("--diff prints a comparison, and --json keeps it; leave out ", idle,
                             ", which would do nothing")};
}

void check_work(const WorkOfStep& work, const std::set<std::string>& given) {
  if (work.flops > 0) {
    const std::string others = given_of(given, {"--model", "--tokens", "--seq"});
    if (!others.empty())
      throw InputError{message("--flops says what a step computes; leave out ", others)};
  } else if (work.model.empty()) {
    const std::string idle =
        given_of(given, {"--tokens", "--seq", "--peak-tflops", "--dtype", "--num-devices"});
    if (!idle.empty())
      throw InputError{message("nothing is said of model FLOPs, which ", idle,
                               idle.find(',') == std::string::npos ? " is" : " are",
                               " about; add --model NAME --tokens N, or --flops X")};
    return;
  } else if (work.tokens == 0) {
    throw InputError{message("--model ", work.model,
                             " needs the tokens of a step over all ranks; add, for example, "
                             "--tokens 64k")};
  }
  if (work.peak_tflops > 0 && given.contains("--dtype"))
    throw InputError{"--dtype chooses a peak by the device's name; leave it out, or --peak-tflops"};
  if (work.model.empty()) return;
  const std::int64_t seq = work.seq > 0 ? work.seq : find_model(work.model).shape.seq;
  if (work.tokens < seq)
    throw InputError{message("--tokens ", work.tokens, " is less than one sequence of ", seq,
                             work.seq > 0 ? "" : " tokens, as the model was published with",
                             "; give the tokens of a step over all ranks, or --seq N, at most ",
                             work.tokens)};
}

}  // namespace

void check_together(const Options& options, const std::vector<std::string>& arguments) {
  const std::set<std::string> given = names_in(arguments);
  if (options.inputs.empty())
    throw InputError{
        "nothing to analyse; give files, a folder or a glob, for example: shardmark-analyze "
        "traces/"};
  if (options.diff) check_diff(options, given);
  check_work(options.work, given);
}

}  // namespace shardmark::bench::analyze
