#include "core/error.hpp"
#include "layers/pipeline/render.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace shardmark::pipeline {
namespace {

std::string label_of(const Step& step) {
  return step.with ? message(to_text(step.action), '+', to_text(*step.with)) : to_text(step.action);
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

/// Labels at the columns they start in; a label may be as wide as the columns it spans.
struct Row {
  struct Cell {
    std::size_t column, num_columns;
    std::string label;
  };
  std::vector<Cell> cells;
};

std::size_t column_width(const std::vector<Row>& rows) {
  std::size_t width = 1;
  for (const Row& row : rows)
    for (const Row::Cell& cell : row.cells)
      width = std::max(width, (cell.label.size() + cell.num_columns) / cell.num_columns);
  return width;
}

}  // namespace

std::string to_grid(const Schedule& schedule, std::span<const Problem> problems) {
  const bool by_time = problems.empty() && schedule.lowering == Lowering::none;
  const Timeline timeline = by_time ? replay(schedule) : Timeline{};
  std::set<std::pair<int, int>> failing;
  for (const Problem& problem : problems) failing.insert({problem.rank, problem.step});
  std::vector<Row> rows;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    Row& row = rows.emplace_back();
    for (std::size_t i = 0; i < schedule.ranks[r].size(); ++i) {
      std::string label = label_of(schedule.ranks[r][i]);
      if (failing.contains({rank, static_cast<int>(i)})) label = '>' + label + '<';
      std::size_t start = i, end = i + 1;
      if (by_time) {
        start = static_cast<std::size_t>(std::lround(timeline.steps[r][i].start));
        end = static_cast<std::size_t>(std::lround(timeline.steps[r][i].end));
      }
      row.cells.push_back({start, end - start, std::move(label)});
    }
  }
  const std::size_t width = column_width(rows);
  const std::size_t name_width = message("rank ", schedule.num_ranks() - 1).size() + 2;
  const auto num_columns = static_cast<std::size_t>(std::lround(timeline.window));
  std::string text;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    std::string line = padded(message("rank ", rank), name_width);
    std::size_t column = 0;
    const auto idle_until = [&](std::size_t until) {
      for (; column < until; ++column) line += padded(".", width);
    };
    for (const Row::Cell& cell : rows[static_cast<std::size_t>(rank)].cells) {
      idle_until(cell.column);
      line += padded(cell.label, width * cell.num_columns);
      column += cell.num_columns;
    }
    if (by_time) idle_until(num_columns);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  for (const Problem& problem : problems) text += to_text(problem) + '\n';
  return text;
}

}  // namespace shardmark::pipeline
