#include "bench/collectives/cases.hpp"

#include "bench/harness/csv.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <cctype>

namespace shardmark::bench::collectives {
namespace {

/// Elements of the larger buffer, per element of a block.
std::int64_t blocks_of(Collective collective, int group_size) {
  if (collective == Collective::all_to_all_v) return heaviest_count(group_size);
  return total_numel(collective, group_size, 1);
}

void add_sizes(Series& series, const Options& options) {
  const Collective collective = series.point.collective;
  if (collective == Collective::barrier) {
    series.sizes.push_back({});
    return;
  }
  const std::int64_t element = size_of(series.point.dtype);
  const std::int64_t unit = element * blocks_of(collective, series.point.group_size);
  for (const std::int64_t bytes : sizes_of(options)) {
    const std::int64_t block = std::max<std::int64_t>(1, bytes / unit);
    if (!series.sizes.empty() && series.sizes.back().block_numel == block) continue;
    series.sizes.push_back({block, block, block * unit});
  }
}

/// Why the sizes do not suit the type; empty if they do.
std::string trouble_with_sizes(const Series& series, const Options& options) {
  const std::int64_t element = size_of(series.point.dtype);
  const auto whole = [&](std::string_view flag, std::int64_t bytes) -> std::string {
    if (bytes % element == 0) return {};
    return message(flag, ' ', bytes, " is not a whole number of ", nccl_name_of(series.point.dtype),
                   " elements (", element, " bytes each); give a multiple of ", element);
  };
  if (series.point.collective == Collective::barrier) return {};
  std::string trouble = whole("-b", options.min_bytes);
  const bool stepped = options.step_factor == 0 && options.min_bytes != options.max_bytes;
  if (trouble.empty() && stepped) trouble = whole("-i", options.step_bytes);
  const std::int64_t least = series.sizes.front().size_bytes;
  if (trouble.empty() && least > options.max_bytes)
    trouble = message("-e ", options.max_bytes, " does not hold an element for each of the ",
                      series.point.group_size, " ranks; ", name_of(series.point.collective),
                      " takes -e ", least, " or more");
  return trouble;
}

/// An error names the file.
template <class Parse>
auto parse_file(const std::string& path, const Parse& parse) {
  const std::string text = read_file(path);
  try {
    return parse(text);
  } catch (const InputError& error) {
    throw InputError{message(path, ": ", error.what())};
  }
}

std::shared_ptr<const Plan> load_plan(const Options& options, const Series& series) {
  Plan plan = parse_file(options.plan_file, parse_plan);
  if (plan.collective != series.point.collective)
    throw InputError{message(options.plan_file, " is a plan of ", name_of(plan.collective),
                             ", not of ", name_of(series.point.collective))};
  if (plan.num_ranks != series.point.group_size)
    throw InputError{message(options.plan_file, " is a plan for ", plan.num_ranks,
                             " ranks; the group has ", series.point.group_size)};
  if (facts_of(plan.collective).has_root && plan.root != series.point.root)
    throw InputError{message(options.plan_file, " has root ", plan.root, "; give -r ", plan.root)};
  const std::vector<std::string> problems = validate(plan);
  if (!problems.empty())
    throw InputError{message(
        options.plan_file, " is not a correct plan: ", problems.front(),
        problems.size() > 1 ? message(" (and ", problems.size() - 1, " more)") : std::string{})};
  return std::make_shared<const Plan>(std::move(plan));
}

/// One word for tables: the file's own name, spaces replaced.
std::string plan_name(const std::string& path) {
  std::string name = path.substr(path.find_last_of('/') + 1);
  std::ranges::replace_if(
      name, [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }, '_');
  return name;
}

std::string table_name(const Options& options) {
  return options.tuning_file.empty() ? options.tune_file : options.tuning_file;
}

/// auto with the plans of all algorithms that its table names for the collective.
Way make_auto(const Series& series, const Options& options, const World& world) {
  Way way{"auto"};
  const Point& point = series.point;
  const bool is_made_later = tunes_first(options) && options.tuning_text.empty();
  if (is_made_later) {
    way.table = std::make_shared<const ChoiceTable>();
    return way;
  }
  ChoiceTable table = tunes_first(options) ? parse_choice_table(options.tuning_text)
                                           : parse_file(options.tuning_file, parse_choice_table);
  for (const ChoiceTable::Row& row : table.rows()) {
    if (row.collective != point.collective || row.group_size != point.group_size) continue;
    if (row.algorithm == "native" || way.choices.contains(row.algorithm)) continue;
    way.choices[row.algorithm] = std::make_shared<const Plan>(
        make_plan(point.collective, row.algorithm, world.hosts, point.root));
  }
  std::vector<std::int64_t> missing;
  for (const Series::Size& size : series.sizes)
    if (table.find(point.collective, point.group_size, size.size_bytes) == nullptr)
      missing.push_back(size.size_bytes);
  if (!missing.empty())
    way.notice =
        message("auto: ", table_name(options), " has no row for ", name_of(point.collective),
                " on ", point.group_size, " ranks at ", missing.size(), " of ", series.sizes.size(),
                " sizes (", missing.front(), " to ", missing.back(), " B): native is taken there");
  way.table = std::make_shared<const ChoiceTable>(std::move(table));
  return way;
}

void add_ways(Series& series, const Options& options, const World& world) {
  const Collective collective = series.point.collective;
  const bool is_pattern =
      collective == Collective::send_recv && series.point.pattern != Pattern::ring;
  const auto add = [&](const std::string& name, bool may_be_missing) {
    if (std::ranges::find(series.ways, name, &Way::algorithm) != series.ways.end()) return;
    Way way{name};
    if (name == "auto" && !is_pattern) way = make_auto(series, options, world);
    if (name == "auto" && is_pattern)
      way.notice = message("auto: --pattern ", name_of(series.point.pattern),
                           " has only the transport's own: native is taken");
    if (name != "native" && name != "auto") {
      try {
        if (is_pattern)
          throw InputError{message("algorithm ", name, " has no --pattern ",
                                   name_of(series.point.pattern), "; ring does")};
        way.plan = std::make_shared<const Plan>(
            make_plan(collective, name, world.hosts, series.point.root));
      } catch (const InputError& error) {
        if (!may_be_missing) throw;
        way.skip_reason = error.what();
      }
    }
    series.ways.push_back(std::move(way));
  };
  for (const std::string& name : options.algorithms) {
    if (name != "all") {
      add(name, is_sweep(options) || options.algorithms.size() > 1);
      continue;
    }
    add("native", false);
    if (is_pattern) continue;
    for (const std::string_view each : algorithm_names(collective)) add(std::string{each}, true);
  }
  if (!options.plan_file.empty())
    series.ways.push_back({.algorithm = plan_name(options.plan_file),
                           .plan = load_plan(options, series),
                           .is_from_file = true});
}

}  // namespace

Choice choose(const Way& way, const Point& point, std::int64_t size_bytes) {
  if (way.algorithm != "auto") return {way.plan.get()};
  if (!way.table) return {nullptr, "native"};
  const std::string_view name = way.table->pick(point.collective, point.group_size, size_bytes);
  const auto plan = way.choices.find(name);
  return {plan == way.choices.end() ? nullptr : plan->second.get(), std::string{name}};
}

namespace {

Axis largest_axis(const Mesh& mesh) {
  Axis largest = Axis::tp;
  for (const Axis axis : {Axis::dp, Axis::pp, Axis::cp, Axis::ep})
    if (mesh.degree(axis) > mesh.degree(largest)) largest = axis;
  return largest;
}

}  // namespace

World make_world(const Options& options, int rank, const std::vector<std::string>& hosts) {
  const auto size = static_cast<int>(hosts.size());
  World world;
  world.axis = options.axis.value_or(Axis::tp);
  world.mesh = Mesh{options.groups.value_or(Mesh::Degrees{.tp = size})};
  if (world.mesh.size() != size)
    throw InputError{message("--groups makes a grid of ", world.mesh.size(),
                             " ranks, but there are ", size,
                             "; the product of the axes must be the number of ranks")};
  if (options.groups && size > 1 && world.mesh.degree(world.axis) == 1)
    throw InputError{message("--axis ", name_of(world.axis),
                             " has one rank per group in --groups; name an axis that has more, "
                             "for example --axis ",
                             name_of(largest_axis(world.mesh)))};
  world.group = world.mesh.group(rank, world.axis);
  world.num_groups = size / world.group.size;
  const Group first = world.mesh.group(0, world.axis);
  std::vector<std::string> names;
  for (int member = 0; member < first.size; ++member) {
    const std::string& host = hosts[static_cast<std::size_t>(first.world_rank(member))];
    const auto known = std::ranges::find(names, host);
    world.hosts.push_back(static_cast<int>(known - names.begin()));
    if (known == names.end()) names.push_back(host);
  }
  if (options.root >= first.size)
    throw InputError{message("-r ", options.root, " is not a member of a group of ", first.size,
                             "; roots are 0 to ", first.size - 1)};
  if (options.skew_us > 0 && options.skew_rank >= size)
    throw InputError{message("--skew-us: there is no rank ", options.skew_rank, " among ", size)};
  return world;
}

std::vector<Series> expand(const Options& options, const World& world) {
  std::vector<Series> all;
  for (const Collective collective : options.collectives) {
    const CollectiveFacts& facts = facts_of(collective);
    const std::vector<Reduction> none{Reduction::sum};
    for (const Reduction reduction : facts.has_reduction ? options.reductions : none) {
      for (const DType dtype : options.dtypes) {
        if (collective == Collective::barrier && dtype != options.dtypes.front()) continue;
        Series series;
        series.point.collective = collective;
        if (collective == Collective::send_recv)
          series.point.pattern = options.pattern.value_or(Pattern::ring);
        series.point.dtype = dtype;
        series.point.reduction = reduction;
        series.point.root = facts.has_root ? options.root : 0;
        series.point.axis = name_of(world.axis);
        series.point.group_size = world.group.size;
        series.point.num_groups = world.num_groups;
        add_sizes(series, options);
        series.skip_reason = trouble_with_sizes(series, options);
        if (!series.skip_reason.empty() && !is_sweep(options)) throw InputError{series.skip_reason};
        add_ways(series, options, world);
        all.push_back(std::move(series));
      }
    }
  }
  return all;
}

bool has_in_place(Collective collective) {
  switch (collective) {
    case Collective::all_to_all:
    case Collective::all_to_all_v:
    case Collective::send_recv:
    case Collective::barrier:
      return false;
    default:
      return true;
  }
}

std::vector<Variant> variants_of(const Series& series, bool in_place) {
  std::vector<Variant> variants;
  for (const Way& way : series.ways) {
    if (!way.skip_reason.empty()) continue;
    variants.push_back({&way, false});
    if (in_place && has_in_place(series.point.collective)) variants.push_back({&way, true});
  }
  return variants;
}

std::vector<std::int64_t> uneven_counts(int group_size, std::int64_t unit) {
  std::vector<std::int64_t> counts;
  for (int i = 0; i < group_size; ++i)
    for (int j = 0; j < group_size; ++j) counts.push_back((i + 2 * j + 1) % 3 * unit);
  return counts;
}

std::int64_t heaviest_count(int group_size) {
  const std::vector<std::int64_t> counts = uneven_counts(group_size, 1);
  const auto n = static_cast<std::size_t>(group_size);
  std::int64_t heaviest = 1;
  for (std::size_t i = 0; i < n; ++i) {
    std::int64_t row = 0, column = 0;
    for (std::size_t j = 0; j < n; ++j) {
      row += counts[i * n + j];
      column += counts[j * n + i];
    }
    heaviest = std::max({heaviest, row, column});
  }
  return heaviest;
}

}  // namespace shardmark::bench::collectives
