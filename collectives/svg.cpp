#include "collectives/plan.hpp"
#include "collectives/slot_names_internal.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <map>
#include <sstream>
#include <vector>

namespace shardmark {
namespace {

constexpr int column_width = 170;
constexpr int row_height = 34;
constexpr int margin = 40;
constexpr int top = 70;

/// The row of each step: as early as possible, both ends of a message on one row. What never meets
/// (an invalid plan) stays where its rank is.
class Rows {
 public:
  explicit Rows(const Plan& plan) : plan_{plan}, of_step_(plan.steps.size(), 0) {
    const auto n = static_cast<std::size_t>(plan.num_ranks);
    std::map<std::pair<int, int>, std::vector<std::size_t>> sent, received;
    for (std::size_t rank = 0; rank < n; ++rank)
      for (std::size_t i = plan.first[rank]; i < plan.first[rank + 1]; ++i) {
        const Step& step = plan.steps[i];
        const int r = static_cast<int>(rank);
        if (step.to >= 0) sent[{r, step.to}].push_back(i);
        if (step.from >= 0) received[{step.from, r}].push_back(i);
      }
    for (const auto& [pair, sends] : sent) {
      const std::vector<std::size_t>& receives = received[pair];
      for (std::size_t k = 0; k < std::min(sends.size(), receives.size()); ++k)
        messages_.push_back({sends[k], receives[k]});
    }
    settle();
  }

  struct Message {
    std::size_t send, receive;
  };
  [[nodiscard]] const std::vector<Message>& messages() const { return messages_; }
  [[nodiscard]] int row(std::size_t step) const { return of_step_[step]; }
  [[nodiscard]] int number() const {
    return of_step_.empty() ? 0 : 1 + *std::ranges::max_element(of_step_);
  }

 private:
  /// Pushes steps down until each is below its rank's previous one and level with its partners. A
  /// deadlocked plan never settles, so there is an end to it.
  void settle() {
    bool moved = true;
    for (std::size_t round = 0; moved && round <= plan_.steps.size(); ++round) {
      moved = false;
      const auto raise = [&](std::size_t step, int row) {
        if (of_step_[step] >= row) return;
        of_step_[step] = row;
        moved = true;
      };
      for (std::size_t rank = 0; rank + 1 < plan_.first.size(); ++rank)
        for (std::size_t i = plan_.first[rank] + 1; i < plan_.first[rank + 1]; ++i)
          raise(i, of_step_[i - 1] + 1);
      for (const Message& m : messages_) {
        raise(m.send, of_step_[m.receive]);
        raise(m.receive, of_step_[m.send]);
      }
    }
  }

  const Plan& plan_;
  std::vector<int> of_step_;
  std::vector<Message> messages_;
};

class Drawing {
 public:
  explicit Drawing(const Plan& plan) : plan_{plan}, rows_{plan} {}

  std::string draw() {
    const int width = 2 * margin + column_width * plan_.num_ranks;
    const int height = top + row_height * (rows_.number() + 1);
    out_ << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << width << "\" height=\""
         << height << "\" font-family=\"monospace\" font-size=\"11\">\n"
         << "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" "
            "markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#1f5fa8\"/>"
            "</marker></defs>\n"
         << "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
    text(margin, 24, "start",
         message(name_of(plan_.collective), ' ', plan_.algorithm, ", ", plan_.num_ranks,
                 " ranks; + reduces into the slot"));
    for (int rank = 0; rank < plan_.num_ranks; ++rank) {
      text(x(rank), 52, "middle", message("rank ", rank));
      out_ << "<line x1=\"" << x(rank) << "\" y1=\"60\" x2=\"" << x(rank) << "\" y2=\""
           << height - 10 << "\" stroke=\"#cccccc\"/>\n";
    }
    for (const Rows::Message& m : rows_.messages()) arrow(m);
    for (int rank = 0; rank < plan_.num_ranks; ++rank) labels(rank);
    out_ << "</svg>\n";
    return out_.str();
  }

 private:
  [[nodiscard]] static int x(int rank) { return margin + column_width * rank + column_width / 2; }
  [[nodiscard]] static int y(int row) { return top + row_height * row + row_height / 2; }
  [[nodiscard]] int rank_of(std::size_t step) const {
    const auto after = std::ranges::upper_bound(plan_.first, step);
    return static_cast<int>(after - plan_.first.begin()) - 1;
  }

  void text(int at_x, int at_y, std::string_view anchor, const std::string& words) {
    out_ << "<text x=\"" << at_x << "\" y=\"" << at_y << "\" text-anchor=\"" << anchor << "\">"
         << words << "</text>\n";
  }

  void arrow(const Rows::Message& m) {
    const int from = x(rank_of(m.send)), to = x(rank_of(m.receive));
    const int dot = from < to ? 5 : -5;
    out_ << "<line x1=\"" << from + dot << "\" y1=\"" << y(rows_.row(m.send)) << "\" x2=\""
         << to - dot << "\" y2=\"" << y(rows_.row(m.receive)) + (dot > 0 ? -5 : 5)
         << "\" stroke=\"#1f5fa8\" marker-end=\"url(#tip)\"/>\n";
  }

  [[nodiscard]] std::string slots(int slot, int count) const {
    return count == 0  ? std::string{"-"}
           : count > 1 ? message(short_slot(plan_, slot), "..", slot_number(slot) + count - 1)
                       : short_slot(plan_, slot);
  }
  [[nodiscard]] int slot_number(int slot) const {
    const int input = plan_.num_input(), output = plan_.num_output();
    return slot < input ? slot : slot < input + output ? slot - input : slot - input - output;
  }

  void labels(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    for (std::size_t i = plan_.first[r]; i < plan_.first[r + 1]; ++i) {
      const Step& step = plan_.steps[i];
      const int at_y = y(rows_.row(i));
      out_ << "<circle cx=\"" << x(rank) << "\" cy=\"" << at_y << "\" r=\"3\" fill=\"#444444\"/>\n";
      if (step.kind == Step::Kind::copy) {
        text(x(rank), at_y - 6, "middle",
             message(slots(step.target, step.count), " = ", slots(step.source, step.count)));
        continue;
      }
      std::string words;
      if (step.to >= 0) words += slots(step.source, step.count) + " out ";
      if (step.from >= 0)
        words += message(slots(step.target, step.count_in),
                         step.receive == Step::Receive::reduce ? " + in" : " in");
      text(x(rank), at_y - 6, "middle", words);
    }
  }

  const Plan& plan_;
  Rows rows_;
  std::ostringstream out_;
};

}  // namespace

std::string to_svg(const Plan& plan) { return Drawing{plan}.draw(); }

}  // namespace shardmark
