#pragma once

// What options do with their values. The variables must outlive the parse.

#include "bench/harness/command_line.hpp"
#include "bench/harness/quantity.hpp"
#include "core/error.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardmark::bench {

[[nodiscard]] inline bool parse_switch(std::string_view option, std::string_view text) {
  return parse_choice<bool>(option, text, {{"off", false}, {"on", true}});
}

[[nodiscard]] inline CommandLine::Handler set_flag(bool& into) {
  return [&into](std::string_view, const std::string&) { into = true; };
}
template <class Into>
[[nodiscard]] CommandLine::Handler set_count(Into& into, int lowest) {
  return [&into, lowest](std::string_view option, const std::string& text) {
    into = parse_count(option, text, lowest);
  };
}
[[nodiscard]] inline CommandLine::Handler set_number(double& into, double lowest) {
  return [&into, lowest](std::string_view option, const std::string& text) {
    into = parse_number(option, text, lowest);
  };
}
/// A share, from 0 to 100.
[[nodiscard]] inline CommandLine::Handler set_percent(double& into) {
  return [&into](std::string_view option, const std::string& text) {
    into = parse_number(option, text, 0);
    if (into > 100)
      throw InputError{
          message(option, ": '", text, "' is more than 100 percent; 100 is never exceeded")};
  };
}
[[nodiscard]] inline CommandLine::Handler set_switches(std::vector<bool>& into) {
  return [&into](std::string_view option, const std::string& text) {
    into = parse_list(option, text, parse_switch);
  };
}
[[nodiscard]] inline CommandLine::Handler set_path(std::string& into) {
  return [&into](std::string_view option, const std::string& text) {
    if (text.empty()) throw InputError{message(option, " needs the name of a folder")};
    into = text;
  };
}
[[nodiscard]] inline CommandLine::Handler set_counts(std::vector<int>& into) {
  return [&into](std::string_view option, const std::string& text) {
    into = parse_list(option, text, [](std::string_view name, std::string_view part) {
      return parse_count(name, part, 1);
    });
  };
}
[[nodiscard]] inline CommandLine::Handler set_sizes(std::vector<std::int64_t>& into) {
  return [&into](std::string_view option, const std::string& text) {
    into = parse_list(option, text, parse_quantity);
  };
}

template <class T>
using Choices = std::vector<std::pair<std::string_view, T>>;
/// One of a few names.
template <class T, class Into>
[[nodiscard]] CommandLine::Handler set_choice(Into& into, const Choices<T>& choices) {
  return [choices, &into](std::string_view option, const std::string& text) {
    into = parse_choice(option, text, choices);
  };
}
/// Several of them.
template <class T>
[[nodiscard]] CommandLine::Handler set_choices(std::vector<T>& into, const Choices<T>& choices) {
  return [choices, &into](std::string_view option, const std::string& text) {
    into = parse_list(option, text, [&choices](std::string_view name, std::string_view part) {
      return parse_choice(name, part, choices);
    });
  };
}

}  // namespace shardmark::bench
