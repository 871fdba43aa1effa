#include "core/error.hpp"
#include "layers/pipeline/render.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <sstream>

namespace shardmark::pipeline {
namespace {

constexpr int row_height = 30;
constexpr int left = 70, top = 40, right = 20;
constexpr double unit_width = 34;  ///< of the shortest step

/// Fill by act, lighter for the first chunk of a rank, darker for later ones.
std::string_view fill_of(Act act, bool first_chunk) {
  switch (act) {
    case Act::F:
      return first_chunk ? "#a8c8f0" : "#6fa3e0";
    case Act::B:
    case Act::I:
      return first_chunk ? "#f3c99b" : "#e0a35f";
    case Act::W:
      return first_chunk ? "#b9dfb0" : "#86c079";
    default:
      return "#e4e4e4";
  }
}

class Drawing {
 public:
  Drawing(const Schedule& schedule, std::span<const Problem> problems, const Durations& durations)
      : schedule_{schedule}, problems_{problems} {
    for (const Problem& problem : problems) failing_.insert({problem.rank, problem.step});
    if (problems.empty()) {
      timeline_ = replay(schedule, durations);
      double shortest = timeline_.window;
      for (const auto& steps : timeline_.steps)
        for (const Span& span : steps)
          if (span.end > span.start) shortest = std::min(shortest, span.end - span.start);
      scale_ = unit_width / shortest;
    } else {
      lay_out_by_step();
    }
  }

  std::string draw() {
    const int height =
        top + row_height * schedule_.num_ranks() + 18 * static_cast<int>(problems_.size()) + 20;
    out_ << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\""
         << left + right + scale_ * timeline_.window << "\" height=\"" << height
         << "\" font-family=\"monospace\" font-size=\"10\">\n"
         << "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
    text(left, 22, "start",
         message(schedule_.name, ", ", schedule_.num_ranks(), " ranks, ", schedule_.num_stages,
                 " stages, ", schedule_.num_micro, " micro-batches"));
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
      text(left - 8, y(rank) + 18, "end", message("rank ", rank));
      draw_rank(rank);
    }
    int at = y(schedule_.num_ranks()) + 18;
    for (const Problem& problem : problems_) {
      text(left, at, "start", to_text(problem));
      at += 18;
    }
    out_ << "</svg>\n";
    return out_.str();
  }

 private:
  static int y(int rank) { return top + row_height * rank; }

  /// One unit per step: what is wrong has no times.
  void lay_out_by_step() {
    scale_ = 2 * unit_width;
    for (const auto& steps : schedule_.ranks) {
      auto& spans = timeline_.steps.emplace_back();
      for (std::size_t i = 0; i < steps.size(); ++i)
        spans.push_back({static_cast<double>(i), static_cast<double>(i + 1)});
      timeline_.window = std::max(timeline_.window, static_cast<double>(steps.size()));
    }
  }

  void text(double at_x, double at_y, std::string_view anchor, const std::string& words) {
    out_ << "<text x=\"" << at_x << "\" y=\"" << at_y << "\" text-anchor=\"" << anchor << "\">";
    for (const char c : words) {
      if (c == '<')
        out_ << "&lt;";
      else if (c == '&')
        out_ << "&amp;";
      else
        out_ << c;
    }
    out_ << "</text>\n";
  }

  void draw_rank(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const std::vector<int> stages = schedule_.stages_of(rank);
    for (std::size_t i = 0; i < schedule_.ranks[r].size(); ++i) {
      const Step& step = schedule_.ranks[r][i];
      const Span span = timeline_.steps[r][i];
      const bool fails = failing_.contains({rank, static_cast<int>(i)});
      // A message that takes no time is not worth a box.
      if (span.end <= span.start) continue;
      const double x = left + scale_ * span.start, width = scale_ * (span.end - span.start);
      // Of two actions that run as one each has half of the height.
      const int num = step.with ? 2 : 1;
      int part = 0;
      for_each_action(step, [&](const Action& action) {
        const bool first_chunk = stages.empty() || action.stage == stages.front();
        box(x, y(rank) + part * (row_height - 4) / num, width, (row_height - 4) / num,
            fails ? "#ff4d4d" : fill_of(action.act, first_chunk), to_text(action));
        ++part;
      });
    }
  }

  void box(double at_x, double at_y, double width, int height, std::string_view fill,
           const std::string& label) {
    out_ << "<rect x=\"" << at_x << "\" y=\"" << at_y << "\" width=\"" << width << "\" height=\""
         << height << "\" fill=\"" << fill << "\" stroke=\"#555555\" stroke-width=\"0.5\"/>\n";
    text(at_x + width / 2, at_y + height / 2.0 + 3.5, "middle", label);
  }

  const Schedule& schedule_;
  std::span<const Problem> problems_;
  std::set<std::pair<int, int>> failing_;
  Timeline timeline_;
  double scale_{1};
  std::ostringstream out_;
};

}  // namespace

std::string to_svg(const Schedule& schedule, std::span<const Problem> problems,
                   const Durations& durations) {
  return Drawing{schedule, problems, durations}.draw();
}

}  // namespace shardmark::pipeline
