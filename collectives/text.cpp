// The text of a plan:
//
//   plan all_reduce ring ranks 2 root 0 slots_per_block 2 scratch 0
//   rank 0
//     copy in0 2 to out0
//     send out1 1 to 1 receive out0 1 from 1 reduce
//   ...
//
// A number after a slot counts slots. Everything from # on is a comment.

#include "collectives/plan.hpp"
#include "collectives/slot_names_internal.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <sstream>

namespace shardmark {
namespace {

struct SlotName {
  std::string_view words, letters;
  int number;
};

SlotName name_slot(const Plan& plan, int slot) {
  const int input = plan.num_input(), output = plan.num_output();
  if (slot < input) return {"input slot ", "in", slot};
  if (slot < input + output) return {"output slot ", "out", slot - input};
  return {"scratch slot ", "tmp", slot - input - output};
}

void write_step(std::string& text, const Plan& plan, const Step& step) {
  if (step.kind == Step::Kind::copy) {
    text += message("  copy ", short_slot(plan, step.source), ' ', step.count, " to ",
                    short_slot(plan, step.target), '\n');
    return;
  }
  text += ' ';
  if (step.to >= 0)
    text += message(" send ", short_slot(plan, step.source), ' ', step.count, " to ", step.to);
  if (step.from >= 0)
    text += message(" receive ", short_slot(plan, step.target), ' ', step.count_in, " from ",
                    step.from, step.receive == Step::Receive::reduce ? " reduce" : "");
  text += '\n';
}

/// Reads word by word, line by line.
class Parser {
 public:
  explicit Parser(const std::string& text) : lines_{text} {}

  Plan parse() {
    if (!next_line()) throw InputError{"the plan is empty; --print-plan prints one to start from"};
    read_header();
    bool more = next_line();
    for (int rank = 0; rank < plan_.num_ranks; ++rank) {
      if (!more) fail("there are no steps of rank ", rank);
      expect("rank");
      if (const int named = number("rank"); named != rank)
        fail("rank ", named, " comes where rank ", rank, " should");
      end_line();
      plan_.first.push_back(plan_.steps.size());
      while ((more = next_line()) && peek() != "rank") {
        plan_.steps.push_back(read_step());
        end_line();
      }
    }
    if (more) fail("there are only ", plan_.num_ranks, " ranks");
    plan_.first.push_back(plan_.steps.size());
    return std::move(plan_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw InputError{message("plan, line ", line_number_, ": ", parts...)};
  }

  bool next_line() {
    std::string line;
    while (std::getline(lines_, line)) {
      ++line_number_;
      words_.clear();
      next_ = 0;
      std::istringstream stream{line.substr(0, line.find('#'))};
      for (std::string word; stream >> word;) words_.push_back(word);
      if (!words_.empty()) return true;
    }
    words_.clear();
    next_ = 0;
    return false;
  }
  [[nodiscard]] std::string_view peek() const {
    return next_ < words_.size() ? std::string_view{words_[next_]} : std::string_view{};
  }
  std::string word(std::string_view what) {
    if (next_ == words_.size()) fail("ends where ", what, " should be");
    return words_[next_++];
  }
  void expect(std::string_view keyword) {
    if (peek() != keyword) fail("'", peek(), "' where '", keyword, "' should be");
    ++next_;
  }
  bool accept(std::string_view keyword) {
    if (peek() != keyword) return false;
    ++next_;
    return true;
  }
  void end_line() const {
    if (next_ < words_.size()) fail("'", words_[next_], "' after the end of the line");
  }

  int to_number(std::string_view what, std::string_view text) const {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < 0)
      fail("'", text, "' is not a number for ", what);
    return value;
  }
  int number(std::string_view what) { return to_number(what, word(what)); }

  void read_header() {
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max() / 4;
    expect("plan");
    const std::string name = word("a collective");
    const auto collective = parse_collective(name);
    if (!collective) fail("there is no collective '", name, "'");
    plan_.collective = *collective;
    plan_.algorithm = word("the algorithm's name");
    expect("ranks");
    plan_.num_ranks = number("ranks");
    expect("root");
    plan_.root = number("root");
    expect("slots_per_block");
    plan_.slots_per_block = number("slots_per_block");
    expect("scratch");
    plan_.num_scratch = number("scratch");
    end_line();
    if (plan_.num_ranks < 1) fail("a plan needs one rank or more");
    if (plan_.root >= plan_.num_ranks)
      fail("root ", plan_.root, " is not one of the ", plan_.num_ranks, " ranks");
    if (plan_.slots_per_block < 1) fail("a block needs one slot or more");
    if (std::int64_t{plan_.num_ranks} * plan_.slots_per_block > most || plan_.num_scratch > most)
      fail("more slots than can be numbered");
  }

  int slot(std::string_view what) {
    const std::string text = word(what);
    const auto digits = text.find_first_of("0123456789");
    const std::string region = text.substr(0, digits);
    const int input = plan_.num_input(), output = plan_.num_output();
    const int base = region == "in"    ? 0
                     : region == "out" ? input
                     : region == "tmp" ? input + output
                                       : -1;
    if (base < 0 || digits == std::string::npos)
      fail("'", text, "' is not a slot; in0, out0 and tmp0 are");
    const int count = region == "in" ? input : region == "out" ? output : plan_.num_scratch;
    const int i = to_number("a slot", std::string_view{text}.substr(digits));
    // The last but one also serves as the place of an empty message.
    if (i >= std::max(count, 1)) fail("there is no slot ", text, "; ", region, " has ", count);
    return base + i;
  }

  Step read_step() {
    Step step;
    if (accept("copy")) {
      step.kind = Step::Kind::copy;
      step.source = slot("a slot");
      step.count = number("slots");
      expect("to");
      step.target = slot("a slot");
      return step;
    }
    if (accept("send")) {
      step.source = slot("a slot");
      step.count = number("slots");
      expect("to");
      step.to = peer();
    }
    if (accept("receive")) {
      step.target = slot("a slot");
      step.count_in = number("slots");
      expect("from");
      step.from = peer();
      if (accept("reduce")) step.receive = Step::Receive::reduce;
    }
    if (step.to < 0 && step.from < 0)
      fail("'", peek(), "' where copy, send, receive or rank should be");
    return step;
  }
  int peer() {
    const int rank = number("a rank");
    if (rank >= plan_.num_ranks) fail("rank ", rank, " is not one of the ", plan_.num_ranks);
    return rank;
  }

  std::istringstream lines_;
  std::vector<std::string> words_;
  std::size_t next_{0};
  int line_number_{0};
  Plan plan_;
};

}  // namespace

std::string describe_slot(const Plan& plan, int slot) {
  const SlotName name = name_slot(plan, slot);
  return message(name.words, name.number);
}

std::string short_slot(const Plan& plan, int slot) {
  const SlotName name = name_slot(plan, slot);
  return message(name.letters, name.number);
}

std::string to_text(const Plan& plan) {
  std::string text = message("plan ", name_of(plan.collective), ' ', plan.algorithm, " ranks ",
                             plan.num_ranks, " root ", plan.root, " slots_per_block ",
                             plan.slots_per_block, " scratch ", plan.num_scratch, '\n');
  for (int rank = 0; rank < plan.num_ranks; ++rank) {
    text += message("rank ", rank, '\n');
    for (const Step& step : plan.steps_of(rank)) write_step(text, plan, step);
  }
  return text;
}

Plan parse_plan(const std::string& text) {
  const auto is_binary = [](unsigned char c) { return c == 0x7F || (c < ' ' && !std::isspace(c)); };
  if (std::ranges::any_of(text, is_binary))
    throw InputError{"the plan is not text; --print-plan prints one to start from"};
  return Parser{text}.parse();
}

}  // namespace shardmark
