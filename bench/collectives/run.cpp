#include "bench/collectives/run.hpp"

#include "bench/collectives/clocks.hpp"
#include "bench/collectives/fit.hpp"
#include "bench/collectives/measure.hpp"
#include "bench/collectives/report.hpp"
#include "bench/collectives/tune.hpp"
#include "bench/harness/progress.hpp"
#include "bench/harness/together.hpp"
#include "core/error.hpp"
#include "core/host.hpp"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <ranges>

namespace shardmark::bench::collectives {
namespace {

/// Part of the memory that buffers may take; the rest is for the system and the processes.
constexpr double usable_memory = 0.9;

/// Names a rank that was started with other options: it would call other collectives and hang.
void compare_options(const std::vector<std::string>& command_line, Transport& transport) {
  std::string mine;
  for (std::size_t i = 1; i < command_line.size(); ++i) mine += ' ' + command_line[i];
  const std::vector<std::string> all = transport.gather(mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all.front())
      throw InputError{message("rank ", rank, " was started with other options than rank 0:",
                               all[rank], " instead of", all.front(), "; start all ranks alike")};
}

struct Memory {
  std::int64_t max_bytes{0}, scratch_bytes{0};
  double matmul_bytes{0};  ///< the three matrices of --with-matmul
};
Memory memory_of(const Options& options, const std::vector<Series>& all, const World& world) {
  Memory memory;
  if (!options.matmul.empty()) {
    const auto m = static_cast<double>(options.matmul[0]),
               n = static_cast<double>(options.matmul[1]),
               k = static_cast<double>(options.matmul[2]);
    memory.matmul_bytes = 4 * (m * k + k * n + m * n);
  }
  for (const Series& series : all) {
    if (series.sizes.empty() || !series.skip_reason.empty()) continue;
    const Series::Size& largest = series.sizes.back();
    memory.max_bytes = std::max(memory.max_bytes, largest.size_bytes);
    for (const Way& way : series.ways)
      memory.scratch_bytes = std::max(
          memory.scratch_bytes, scratch_bytes_of(series, way, largest.block_numel, world.group));
  }
  return memory;
}

/// Collective.
void check_memory(const Memory& memory, Transport& transport, const Engine& engine) {
  const Engine::Memory mine = engine.memory();
  std::map<std::string, int> ranks;
  int most = 1;
  for (const std::string& name : transport.gather(mine.name)) most = std::max(most, ++ranks[name]);
  const double buffers = static_cast<double>(2 * memory.max_bytes + memory.scratch_bytes);
  const double there = -transport.maximum(-static_cast<double>(mine.bytes));
  if (most * (buffers + memory.matmul_bytes) <= usable_memory * there) return;
  const bool is_matmul = memory.matmul_bytes > buffers;
  const std::string_view place = engine.backend_name() == "cuda" ? "GPU" : "host";
  throw InputError{
      message(is_matmul ? std::string{"--with-matmul"} : message("-e ", memory.max_bytes),
              " needs ", most * (is_matmul ? memory.matmul_bytes : buffers) / 1e9, " GB for ", most,
              " ranks on one ", place, ", which has ", there / 1e9, " GB; give a smaller ",
              is_matmul ? "M,N,K" : "-e", " or fewer ranks per ", place)};
}

std::vector<std::string> hosts_of(const Transport& transport) {
  std::vector<std::string> hosts;
  for (const Endpoint& endpoint : transport.endpoints()) hosts.push_back(endpoint.host);
  return hosts;
}

std::vector<std::string> notices_of(const Options& options, const Transport& transport,
                                    const Clocks& clocks) {
  std::vector<std::string> notices;
  notices.push_back(
      options.iterations > 0
          ? message("iters: ", options.iterations,
                    " samples of back-to-back calls that last 100 us or longer")
          : message("iters: at least ", options.min_samples,
                    " samples of back-to-back calls that last 100 us or longer, until "
                    "the median is known to 1 % or ",
                    options.max_time_s, " s per row are over"));
  notices.push_back(
      message(transport.size(), " ranks (", transport.name(), "); ", clocks.describe(transport)));
  if (options.checks > 1)
    notices.push_back(
        message("-c ", options.checks, ": every element is compared, after one call of each row"));
  if (!options.matmul.empty() && !options.progress_thread)
    notices.push_back("with-matmul: communication moves between the tiles of the product (poll)");
  if (!options.matmul.empty() && options.progress_thread)
    notices.push_back("with-matmul: a thread beside each rank moves communication (thread)");
  if (transport.wait_policy().yield)
    notices.push_back(message("oversubscribed: more ranks",
                              options.progress_thread ? " and their threads" : "",
                              " than cores, so they take turns; do not compare times"));
  return notices;
}

/// The sweep on one rank.
class Sweep {
 public:
  Sweep(const Options& options, const std::vector<Series>& all, Meter& meter, Workspace& workspace,
        Transport& transport, Report* report)
      : options_{options},
        meter_{meter},
        workspace_{workspace},
        transport_{transport},
        report_{report},
        progress_{count_sizes(all), ::isatty(STDERR_FILENO) != 0} {}

  void measure(const Series& series, bool is_last_of_collective) {
    on_rank_0(transport_, [&] {
      report_->begin(series);
      report_->add(skipped_rows(series));
    });
    std::vector<Row> rows;
    try {
      if (series.skip_reason.empty())
        for (const Series::Size& size : series.sizes) {
          std::vector<Row> measured = measure_size(series, size);
          std::ranges::move(measured, std::back_inserter(rows));
        }
    } catch (const Interrupted&) {
      finish(rows, true);
      throw;
    }
    finish(rows, is_last_of_collective);
  }

 private:
  static std::size_t count_sizes(const std::vector<Series>& all) {
    std::size_t count = 0;
    for (const Series& series : all)
      if (series.skip_reason.empty()) count += series.sizes.size();
    return count;
  }

  void finish(std::vector<Row>& rows, bool ends_collective) {
    on_rank_0(transport_, [&] {
      progress_.clear();
      const std::vector<std::string> fits = conclude(rows);
      report_->conclude(rows, fits);
      if (ends_collective) report_->end();
    });
  }

  /// Rank 0: the ways that do not exist, unless an earlier run has said so.
  [[nodiscard]] std::vector<Row> skipped_rows(const Series& series) const {
    std::vector<Row> rows;
    for (const Way& way : series.ways) {
      const std::string& reason = series.skip_reason.empty() ? way.skip_reason : series.skip_reason;
      if (reason.empty()) continue;
      Row row;
      row.point = series.point;
      row.point.algorithm = way.algorithm;
      row.status = Status::skipped;
      row.reason = reason;
      for (const Series::Size& size : series.sizes) {
        row.point.count = size.count;
        row.point.size_bytes = size.size_bytes;
        if (!report_->finished().contains(key_of({row, report_->run()}))) rows.push_back(row);
      }
    }
    return rows;
  }

  std::vector<Row> measure_size(const Series& series, const Series::Size& size) {
    std::vector<Meter::Task> tasks = tasks_of(series, size);
    const std::size_t index = num_sizes_++;
    if (tasks.empty()) return {};
    if (transport_.rank() == 0) {
      Point point = series.point;
      point.size_bytes = size.size_bytes;
      point.algorithm =
          message(series.ways.size(), series.ways.size() == 1 ? " algorithm" : " algorithms");
      progress_.start(index, describe(point));
    }
    std::vector<Row> rows = meter_.measure(series, size, tasks);
    on_rank_0(transport_, [&] {
      progress_.clear();
      report_->add(rows);
    });
    return rows;
  }

  /// What is to be measured of a size: not what an earlier run has finished; rank 0 decides.
  std::vector<Meter::Task> tasks_of(const Series& series, const Series::Size& size) {
    const std::vector<Variant> variants = variants_of(series, options_.in_place);
    std::string wanted(variants.size(), '+');
    on_rank_0(transport_, [&] {
      for (std::size_t i = 0; i < variants.size(); ++i) {
        Row row;
        row.point = series.point;
        row.point.algorithm = variants[i].way->algorithm;
        row.point.in_place = variants[i].in_place;
        row.point.size_bytes = size.size_bytes;
        if (report_->finished().contains(key_of({row, report_->run()}))) wanted[i] = '-';
      }
    });
    wanted = transport_.broadcast(wanted);
    std::vector<Meter::Task> tasks;
    for (std::size_t i = 0; i < variants.size(); ++i)
      if (wanted[i] == '+') {
        Choice choice = choose(*variants[i].way, series.point, size.size_bytes);
        tasks.push_back({variants[i], choice.plan, std::move(choice.chosen)});
      }
    return tasks;
  }

  const Options& options_;
  Meter& meter_;
  Workspace& workspace_;
  Transport& transport_;
  Report* report_;  ///< rank 0's, null elsewhere
  Progress progress_;
  std::size_t num_sizes_{0};
};

/// A first pass over everything but auto, for auto's table. Its rows are not reported. On every
/// rank the text of the table, which rank 0 also writes to --tune. Large sizes come first: they
/// open TCP's windows, which later passes find open. Several rounds, some time apart, because what
/// is fastest now may not be for long; a row's time and samples are shared between them.
std::string tune(const Options& options, const World& world, Workspace& workspace,
                 const Clocks& clocks, Transport& transport,
                 const std::function<bool()>& interrupted) {
  Options first = options;
  std::erase(first.algorithms, "auto");
  first.waits = false;
  first.matmul.clear();
  constexpr int rounds = 4;
  first.max_time_s /= rounds;
  first.min_samples = std::max(1, first.min_samples / rounds);
  Meter meter{first, world, workspace, clocks, transport, interrupted};
  std::vector<Row> rows;
  const auto measure = [&](const Series& series, const Series::Size& size) {
    std::vector<Meter::Task> tasks;
    for (const Variant& variant : variants_of(series, first.in_place))
      tasks.push_back({variant, choose(*variant.way, series.point, size.size_bytes).plan, {}});
    std::ranges::move(meter.measure(series, size, tasks), std::back_inserter(rows));
  };
  const std::vector<Series> all = expand(first, world);
  for (int round = 0; round < rounds; ++round)
    for (const Series& series : all)
      if (series.skip_reason.empty())
        for (const Series::Size& size : series.sizes | std::views::reverse) measure(series, size);
  std::string text;
  on_rank_0(transport, [&] { text = to_text(write_choices(options.tune_file, rows, std::cout)); });
  return transport.broadcast(text);
}

}  // namespace

int run(const Options& given, const std::vector<std::string>& command_line, Transport& transport,
        const std::function<bool()>& interrupted) {
  Options options = given;
  compare_options(command_line, transport);
  if (!options.fault.empty()) check_fault(parse_fault(options.fault), transport);
  const int threads_per_rank = options.progress_thread ? 2 : 1;
  const bool crowded = is_oversubscribed(transport, threads_per_rank);
  transport.set_wait_policy({.yield = crowded, .timeout_s = options.timeout_s});
  if (options.progress_thread && !transport.may_change_thread())
    throw InputError{
        "--progress thread needs an MPI that gives MPI_THREAD_SERIALIZED, and this one does not; "
        "give --progress poll"};
  const World world = make_world(options, transport.rank(), hosts_of(transport));
  std::vector<Series> all = expand(options, world);
  const Memory memory = memory_of(options, all, world);
  const std::unique_ptr<Engine> engine = open_engine(options.engine, transport);
  if (options.progress_thread && engine->backend_name() == "cuda")
    throw InputError{
        "--progress thread is for the CPU; a GPU moves communication by itself, so give --progress "
        "poll"};
  check_memory(memory, transport, *engine);
  const Clocks clocks = align_clocks(transport);
  Workspace workspace{world,     options.fault, memory.max_bytes, memory.scratch_bytes,
                      transport, *engine};
  if (tunes_first(options)) {
    options.tuning_text = tune(options, world, workspace, clocks, transport, interrupted);
    all = expand(options, world);
  }
  Meter meter{options, world, workspace, clocks, transport, interrupted};
  const RunIdentity identity{.run_id = make_run_id(),
                             .backend = std::string{engine->backend_name()},
                             .transport = engine->transport_name(),
                             .device = engine->device_name(),
                             .devices = gather_facts(*engine, transport)};
  std::unique_ptr<Report> report;
  on_rank_0(transport, [&] {
    report = std::make_unique<Report>(options, world, identity, transport, command_line,
                                      notices_of(options, transport, clocks));
  });
  Sweep sweep{options, all, meter, workspace, transport, report.get()};
  try {
    for (std::size_t i = 0; i < all.size(); ++i)
      sweep.measure(all[i],
                    i + 1 == all.size() || all[i + 1].point.collective != all[i].point.collective);
  } catch (const Interrupted&) {
    on_rank_0(transport, [&] { report->finish(false); });
    throw;
  }
  const bool is_fault_left = transport.maximum(workspace.is_fault_armed() ? 1 : 0) > 0;
  char code = '0';
  on_rank_0(transport, [&] {
    report->finish(true);
    if (!options.tune_file.empty() && !tunes_first(options))
      (void)write_choices(options.tune_file, report->rows(), std::cout);
    if (is_fault_left)
      std::cerr << "shardmark: --inject-fault " << options.fault
                << " never happened: its rank made fewer such ops; give a smaller op\n";
    if (report->num_failed() > 0 || is_fault_left)
      code = '1';
    else if (report->num_ok() == 0 && report->finished().empty())
      code = '2';
  });
  return transport.broadcast(std::string(1, code)).front() - '0';
}

}  // namespace shardmark::bench::collectives
