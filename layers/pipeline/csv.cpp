#include "core/error.hpp"
#include "layers/pipeline/schedule.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <sstream>

namespace shardmark::pipeline {
namespace {

constexpr std::string_view header = "#shardmark";
constexpr std::string_view two_way = "placement=two_way";
constexpr std::string_view merged = "lowering=merged";

std::string_view trim(std::string_view text) {
  constexpr std::string_view space = " \t\r";
  const auto first = text.find_first_not_of(space);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(space) - first + 1);
}

/// 'text' for a message: its beginning, with bytes that a terminal would not show as \xNN.
std::string quoted(std::string_view text) {
  constexpr std::string_view hex = "0123456789abcdef";
  constexpr std::size_t most_shown = 40;
  std::string shown = "'";
  for (const char c : text.substr(0, most_shown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f)
      shown += c;
    else
      shown += {'\\', 'x', hex[byte / 16], hex[byte % 16]};
  }
  return shown + (text.size() > most_shown ? "'..." : "'");
}

class Parser {
 public:
  Schedule parse(const std::string& text) {
    std::istringstream lines{text};
    std::size_t num_rows = 0;  // up to the last that has actions
    for (std::string line; std::getline(lines, line);) {
      ++line_;
      const std::string_view row = trim(line);
      if (row.starts_with(header)) read_header(row.substr(header.size()));
      if (row.starts_with('#')) continue;
      schedule_.ranks.emplace_back();
      read_row(row);
      if (!schedule_.ranks.back().empty()) num_rows = schedule_.ranks.size();
    }
    schedule_.ranks.resize(num_rows);
    if (num_actions_ == 0)
      throw InputError{"the schedule is empty; --print-schedule prints one to start from"};
    place_stages();
    schedule_.name = "file";
    return std::move(schedule_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    const std::string cell = cell_ > 0 ? message(", cell ", cell_) : std::string{};
    throw InputError{message("schedule, line ", line_, cell, ": ", parts...)};
  }

  void read_header(std::string_view words) {
    std::istringstream stream{std::string{words}};
    for (std::string word; stream >> word;) {
      if (word == two_way)
        two_way_ = true;
      else if (word == merged)
        schedule_.lowering = Lowering::merged;
      else
        fail(quoted(word), " is neither ", two_way, " nor ", merged);
    }
  }

  void read_row(std::string_view row) {
    cell_ = 0;
    while (!row.empty()) {
      ++cell_;
      const auto comma = row.find(',');
      const std::string_view cell = trim(row.substr(0, comma));
      row = comma == std::string_view::npos ? std::string_view{} : row.substr(comma + 1);
      if (!cell.empty()) read_cell(cell);
    }
    cell_ = 0;
  }

  void read_cell(std::string_view cell) {
    std::vector<Step>& steps = schedule_.ranks.back();
    if (!cell.starts_with('(')) {
      if (const auto action = read_action(cell)) steps.push_back({*action, {}});
      return;
    }
    const auto close = cell.find(')'), middle = cell.find(';');
    if (close == std::string_view::npos || middle > close)
      fail(quoted(cell), " is not of the form (0F1;1B0)OVERLAP_F_B");
    const auto first = read_action(trim(cell.substr(1, middle - 1)));
    const auto second = read_action(trim(cell.substr(middle + 1, close - middle - 1)));
    if (!first || !second) fail(quoted(cell), " joins something that is not an action");
    const std::string_view wanted = is_compute(first->act) ? "OVERLAP_F_B" : "SEND_RECV";
    if (cell.substr(close + 1) != wanted)
      fail(quoted(cell), " ends with ", quoted(cell.substr(close + 1)), " where ", wanted,
           " should be");
    steps.push_back({*first, second});
  }

  /// None for actions that are about sharded weights.
  std::optional<Action> read_action(std::string_view text) {
    const char* const end = text.data() + text.size();
    const auto malformed = [&] {
      fail(quoted(text),
           " is not an action: 0F1 is stage 0, forward, micro-batch 1; there are F, B, "
           "I, W, SEND_F, RECV_F, SEND_B and RECV_B");
    };
    Action action;
    const auto [letters, error] = std::from_chars(text.data(), end, action.stage);
    if (error != std::errc{} || action.stage < 0) malformed();
    const char* const digits =
        std::find_if(letters, end, [](char c) { return c >= '0' && c <= '9'; });
    const std::string_view word{letters, static_cast<std::size_t>(digits - letters)};
    if (word == "UNSHARD" || word == "RESHARD" || word == "REDUCE_GRAD") return {};
    int act = 0;
    while (act < num_acts && name_of(static_cast<Act>(act)) != word) ++act;
    if (act == num_acts) malformed();
    action.act = static_cast<Act>(act);
    const auto [last, micro_error] = std::from_chars(digits, end, action.micro);
    if (micro_error != std::errc{} || last != end) malformed();
    if (!is_compute(action.act) && schedule_.lowering == Lowering::none)
      schedule_.lowering = Lowering::split;
    schedule_.num_stages = std::max(schedule_.num_stages, action.stage);
    schedule_.num_micro = std::max(schedule_.num_micro, action.micro);
    ++num_actions_;
    return action;
  }

  void place_stages() {
    // So far these were the largest numbers.
    const std::int64_t stages = std::int64_t{schedule_.num_stages} + 1;
    const std::int64_t micro = std::int64_t{schedule_.num_micro} + 1;
    if (stages > num_actions_ || micro > num_actions_ || stages * micro > num_actions_)
      throw InputError{message("the schedule has actions of stage ", stages - 1,
                               " and of micro-batch ", micro - 1, ", and only ", num_actions_,
                               " actions, fewer than ", stages, " x ", micro, " forwards")};
    schedule_.num_stages = static_cast<int>(stages);
    schedule_.num_micro = static_cast<int>(micro);
    const int p = schedule_.num_ranks();
    if (two_way_) {
      if (schedule_.num_stages != p)
        throw InputError{message("the schedule says ", two_way, " and has ", stages, " stages on ",
                                 p, " ranks; their numbers must be equal")};
      for (int stage = 0; stage < p; ++stage) {
        schedule_.rank_of_stage.push_back(stage);
        schedule_.rank_of_second_copy.push_back(p - 1 - stage);
      }
      return;
    }
    std::map<std::pair<int, int>, int> num_forwards;  // by stage and rank
    for (int rank = 0; rank < p; ++rank)
      for (const Step& step : schedule_.ranks[static_cast<std::size_t>(rank)])
        for_each_action(step, [&](const Action& action) {
          if (action.act == Act::F) ++num_forwards[{action.stage, rank}];
        });
    std::vector<int> most(static_cast<std::size_t>(stages), 0);
    for (int stage = 0; stage < schedule_.num_stages; ++stage)
      schedule_.rank_of_stage.push_back(stage % p);
    for (const auto& [where, count] : num_forwards) {
      const auto stage = static_cast<std::size_t>(where.first);
      if (count <= most[stage]) continue;
      most[stage] = count;
      schedule_.rank_of_stage[stage] = where.second;
    }
  }

  Schedule schedule_;
  bool two_way_{false};
  std::int64_t num_actions_{0};
  int line_{0}, cell_{0};
};

}  // namespace

std::string to_csv(const Schedule& schedule) {
  std::string text;
  if (schedule.is_two_way() || schedule.lowering == Lowering::merged)
    text = message(header, schedule.is_two_way() ? message(' ', two_way) : "",
                   schedule.lowering == Lowering::merged ? message(' ', merged) : "", '\n');
  for (const auto& steps : schedule.ranks) {
    for (std::size_t i = 0; i < steps.size(); ++i)
      text += message(i > 0 ? "," : "", to_text(steps[i]));
    text += '\n';
  }
  return text;
}

Schedule parse_csv(const std::string& text) { return Parser{}.parse(text); }

}  // namespace shardmark::pipeline
