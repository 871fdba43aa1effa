#include "bench/harness/command_line.hpp"

#include "core/error.hpp"
#include "core/nearest.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>

namespace shardmark::bench {
namespace {

constexpr int help_column = 30;
constexpr std::size_t help_width = 68;

/// Breaks at spaces so that no line is longer than `width`.
std::string wrap(const std::string& text, std::size_t width) {
  std::string wrapped;
  std::size_t column = 0;
  for (std::size_t first = 0; first < text.size();) {
    const std::size_t space = std::min(text.find(' ', first), text.size());
    const std::size_t length = space - first;
    if (column > 0) {
      const bool fits = column + 1 + length <= width;
      wrapped += fits ? ' ' : '\n';
      column = fits ? column + 1 : 0;
    }
    wrapped.append(text, first, length);
    column += length;
    first = space + 1;
  }
  return wrapped;
}

class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(help_column); }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_name().empty() ? "" : " " + option->get_type_name();
  }
};

}  // namespace

CommandLine::CommandLine(const Program& program)
    : app_{std::make_unique<CLI::App>(program.description, program.name)} {
  app_->formatter(std::make_shared<HelpFormatter>());
  app_->set_help_flag();
  app_->footer(program.examples);
}
CommandLine::~CommandLine() = default;

std::pair<std::string, std::string> CommandLine::describe(const std::string& names,
                                                          const Help& help) {
  const std::size_t comma = names.find(',');
  if (comma != std::string::npos) names_.push_back(names.substr(0, comma));
  const std::string name = comma == std::string::npos ? names : names.substr(comma + 1);
  names_.push_back(name);
  if (help.type.ends_with(",...")) lists_.push_back(name);
  std::string about = help.about;
  if (!help.fallback.empty()) about += message(" [default: ", help.fallback, ']');
  about = wrap(about, help_width);
  about +=
      message("\nexample: ", names.substr(0, comma), help.type.empty() ? "" : " ", help.example);
  return {name, about};
}

void CommandLine::add(const std::string& names, const Help& help, Handler handler) {
  const auto [name, about] = describe(names, help);
  const bool flag = help.type.empty();
  CLI::Option* option =
      flag ? app_->add_flag_callback(
                 names, [name = name, handler] { handler(name, ""); }, about)
           : app_->add_option_function<std::string>(
                 names, [name = name, handler](const std::string& text) { handler(name, text); },
                 about);
  if (!flag) option->type_name(help.type);
  option->group(group_);
}

void CommandLine::add_repeatable(const std::string& names, const Help& help, Handler handler) {
  const auto [name, about] = describe(names, help);
  repeatable_.push_back(name);
  app_->add_option_function<std::vector<std::string>>(
          names,
          [name = name, handler](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) handler(name, text);
          },
          about)
      ->allow_extra_args(false)
      ->type_name(help.type)
      ->group(group_);
}

void CommandLine::add_positional(const std::string& name, const std::string& about,
                                 Handler handler) {
  app_->add_option_function<std::string>(
          name, [name, handler](const std::string& text) { handler(name, text); },
          wrap(about, help_width))
      ->type_name(" ");
}

void CommandLine::add_positionals(const std::string& name, const std::string& about,
                                  Handler handler) {
  app_->add_option_function<std::vector<std::string>>(
          name,
          [name, handler](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) handler(name, text);
          },
          wrap(about, help_width))
      ->type_name(" ");
}

void CommandLine::add_print(const std::string& name, const std::string& about,
                            std::function<std::string()> text) {
  names_.push_back(name);
  app_->add_flag_callback(
          name, [this, text = std::move(text)] { print_ = text(); },
          message(about, "\nexample: ", name))
      ->group(group_);
}

std::string CommandLine::parse(const std::vector<std::string>& arguments) {
  names_.emplace_back("--help");
  app_->add_flag_callback(
          "-h,--help", [this] { print_ = app_->help(); }, "print this text\nexample: --help")
      ->group(group_);
  try {
    std::vector<std::string> reversed{arguments.rbegin(), arguments.rend()};
    app_->parse(std::move(reversed));
  } catch (const CLI::ExtrasError&) {
    fail_unknown(app_->remaining().front());
  } catch (const CLI::ArgumentMismatch& error) {
    fail_repeated(arguments);
    throw InputError{message(error.what(), "; --help lists the options with examples")};
  } catch (const CLI::ParseError& error) {
    throw InputError{message(error.what(), "; --help lists the options with examples")};
  }
  return std::move(print_);
}

void CommandLine::fail_repeated(const std::vector<std::string>& arguments) const {
  for (const std::string& name : names_) {
    const auto num = std::ranges::count_if(arguments, [&](const std::string& argument) {
      return argument.substr(0, argument.find('=')) == name;
    });
    if (num < 2 || std::ranges::count(repeatable_, name) > 0) continue;
    const bool is_list = std::ranges::count(lists_, name) > 0;
    throw InputError{message(name, " is given more than once; give one value",
                             is_list ? message(", or one list: ", name, " A,B") : std::string{})};
  }
}

void CommandLine::fail_unknown(const std::string& argument) const {
  if (!argument.starts_with('-'))
    throw InputError{message("unexpected argument '", argument,
                             "'; lists are written without spaces, for example 1,2,4")};
  const std::vector<std::string_view> names{names_.begin(), names_.end()};
  const std::string option = argument.substr(0, argument.find('='));
  throw InputError{message("unknown option ", option, did_you_mean(option, names),
                           "; --help lists the options")};
}

}  // namespace shardmark::bench
