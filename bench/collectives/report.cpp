#include "bench/collectives/report.hpp"

#include "core/error.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>

namespace shardmark::bench::collectives {
namespace {

using Json = nlohmann::ordered_json;

Json how_measured(const Options& options) {
  return {{"samples", options.iterations},
          {"min_samples", options.min_samples},
          {"max_time_s", options.max_time_s},
          {"warmup", options.warmup},
          {"aggregate", options.aggregate},
          {"rank_scope", name_of(options.scope)},
          {"blocking", options.blocking},
          {"check", options.checks > 0},
          {"waits", options.waits},
          {"skew_us", options.skew_us},
          {"matmul", options.matmul},
          {"timeout_s", options.timeout_s},
          {"progress", options.progress_thread ? "thread" : "poll"}};
}

std::string results_path(const Options& options) { return options.out + "/results.csv"; }
std::string waits_path(const Options& options) { return options.out + "/waits.csv"; }

}  // namespace

Report::Report(const Options& options, const World& world, RunIdentity run,
               const Transport& transport, const std::vector<std::string>& command_line,
               const std::vector<std::string>& notices)
    : options_{options},
      run_{std::move(run)},
      table_{std::cout, options},
      endpoints_{transport.endpoints()} {
  for (int rank = 0; rank < transport.size(); ++rank)
    // The group's first rank names it.
    groups_.push_back(world.mesh.group(rank, world.axis).first);
  std::vector<std::string> said = notices;
  if (!options.out.empty()) {
    prepare_folder(options.out, options.resume, {"run.json", "results.csv", "waits.csv"});
    if (options.resume) {
      read_earlier();
      drop_unfinished_waits();
      said.push_back(message(finished_.size(), " rows are in ", results_path(options), " already"));
      const std::string changed = changed_settings(options.out, how_measured(options));
      if (!finished_.empty() && !changed.empty())
        said.push_back("those rows were measured with other settings: " + changed);
    }
    results_ = std::make_unique<CsvFile>(results_path(options), column_names(), options.resume);
    waits_ = std::make_unique<CsvFile>(waits_path(options), wait_column_names(), options.resume);
    record_ = std::make_unique<RunRecord>(
        options.out,
        provenance_of("shardmark-collectives", schema_version, command_line, how_measured(options),
                      run_, transport),
        options.resume);
  }
  table_.conventions(said);
}

void Report::read_earlier() {
  if (!std::filesystem::exists(results_path(options_))) return;
  const std::vector<std::vector<std::string>> lines = parse_csv(read_file(results_path(options_)));
  if (lines.empty() || lines.front() != column_names())
    throw InputError{message(results_path(options_),
                             " has other columns than this version writes; use another --out, or "
                             "leave out --resume")};
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].size() != lines.front().size()) continue;
    std::string joined;
    bool failed = false;
    for (std::size_t c = 0; c < lines[i].size(); ++c) {
      failed = failed || (columns()[c].name == "status" && lines[i][c] == "failed");
      if (columns()[c].holds == Column::Holds::key) joined += lines[i][c] + '\n';
    }
    if (!failed) finished_.insert(joined);
    earlier_.push_back(lines[i]);
  }
}

/// A run that was killed may have waits of a row that is not in results.csv; it is measured again.
void Report::drop_unfinished_waits() {
  if (!std::filesystem::exists(waits_path(options_))) return;
  const auto lines = parse_csv(read_file(waits_path(options_)));
  if (lines.empty() || lines.front() != wait_column_names()) return;
  const auto num_keys = std::ranges::count(columns(), Column::Holds::key, &Column::holds);
  std::string kept = csv_line(lines.front());
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].size() != lines.front().size()) continue;
    std::string joined;
    for (std::ptrdiff_t c = 0; c < num_keys; ++c)
      joined += lines[i][static_cast<std::size_t>(c)] + '\n';
    if (finished_.contains(joined)) kept += csv_line(lines[i]);
  }
  write_whole(waits_path(options_), kept);
}

void Report::begin(const Series& series) {
  if (!begun_) table_.begin(series.point.collective, endpoints_, groups_, run_.device);
  begun_ = true;
  for (const Way& way : series.ways)
    if (!way.notice.empty() && said_.insert(way.notice).second) table_.note(way.notice);
}

void Report::add(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    if (row.status == Status::ok) ++num_ok_;
    if (row.status == Status::failed) ++num_failed_;
    if (row.status == Status::skipped) ++num_skipped_;
    if (results_) {
      waits_->append(wait_cells_of({row, run_}));
      results_->append({cells_of({row, run_})});
    }
    rows_.push_back(row);
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].status == Status::skipped) {
      const std::size_t first = i;
      while (i + 1 < rows.size() && rows[i + 1].status == Status::skipped &&
             rows[i + 1].point.algorithm == rows[first].point.algorithm)
        ++i;
      table_.skip(rows[first], rows[i].point.size_bytes);
      continue;
    }
    const bool has_second = i + 1 < rows.size() && rows[i + 1].point.in_place &&
                            rows[i + 1].point.algorithm == rows[i].point.algorithm;
    table_.add(rows[i], has_second ? &rows[i + 1] : nullptr);
    if (has_second) ++i;
  }
}

void Report::conclude(const std::vector<Row>& rows, const std::vector<std::string>& fits) {
  SHARDMARK_CHECK(rows.size() <= rows_.size(), rows.size(), " rows of ", rows_.size());
  std::ranges::copy(rows, rows_.end() - static_cast<std::ptrdiff_t>(rows.size()));
  fits_.insert(fits_.end(), fits.begin(), fits.end());
  table_.conclude(rows, fits);
  if (results_) rewrite();
}

/// Replaces results.csv as a whole: the rows have got their expected times. New rows go on there.
void Report::rewrite() {
  std::string text = csv_line(column_names());
  for (const auto& cells : earlier_) text += csv_line(cells);
  for (const Row& row : rows_) text += csv_line(cells_of({row, run_}));
  write_whole(results_path(options_), text);
  results_ = std::make_unique<CsvFile>(results_path(options_), column_names(), true);
}

void Report::end() {
  if (begun_) table_.end();
  begun_ = false;
}

void Report::finish(bool complete) {
  end();
  if (!record_) return;
  record_->finish({{"ok", num_ok_}, {"skipped", num_skipped_}, {"failed", num_failed_}},
                  {{"fits", fits_}}, complete);
}

}  // namespace shardmark::bench::collectives
