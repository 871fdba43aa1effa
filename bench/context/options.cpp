#include "bench/context/options.hpp"

#include "bench/harness/handlers.hpp"

#include <algorithm>

namespace shardmark::bench::context {
namespace {

constexpr const char* description =
    "shardmark-cp: time attention over a sequence that is split across ranks, forward and\n"
    "backward, and say which scheme wins and why.\n"
    "Options that take N,... or NAME,... sweep: every combination is one row of the result.\n"
    "In sizes k is 1024 and m is 1024 x 1024.";

constexpr const char* examples =
    "Examples:\n"
    "  shardmark-cp --ranks 2\n"
    "      ring, Ulysses and all-gather on two threads of this process, beside one rank\n"
    "  mpirun -n 2 shardmark-cp --kind ring --order contiguous,zigzag --seq 4k,16k --heads 16 "
    "--out run\n"
    "      a sweep on two MPI ranks; table on stdout, files in run/\n"
    "  mpirun -n 4 shardmark-cp --kind hybrid --cp 4 --ulysses 2 --scope block --heads 8\n"
    "      Ulysses over pairs of ranks inside a ring, in a whole transformer block\n"
    "  mpirun -n 2 shardmark-cp --advise --seq 4k,64k --heads 32 --kv-heads 32,8\n"
    "      measures the links for a second and says what to expect\n"
    "  mpirun -n 4 shardmark-cp --backend cuda --dtype bf16 --seq 64k --heads 32\n"
    "      on GPUs, bytes by NCCL; --transport staged lets ranks share one\n"
    "  shardmark-cp --dry-run --cp 256 --seq 1m --heads 256\n"
    "      operations, FLOPs, bytes and memory of each rank; nothing is executed\n"
    "  shardmark-cp --predict h100-sxm-8 --cp 1,2,4,8 --seq 64k --heads 32 --dtype bf16\n"
    "      the same table for eight H100s; nothing is executed\n"
    "Exit code: 0 done, 1 a row failed or an error, 2 bad input, 128 + signal interrupted.";

void add_shape_options(CommandLine& line, Options& options) {
  bench::Options& base = options.base;
  line.group("Shapes");
  line.add("--scope",
           {"NAME,...", "attention (alone, on given q, k and v) or a whole transformer block",
            "attention", "attention,block"},
           set_choices<BlockKind>(base.blocks, {{"attention", BlockKind::attention_core},
                                                {"block", BlockKind::block}}));
  line.add("--seq", {"N,...", "sequence length (tokens)", "2k, or what --seqlens add up to", "4k"},
           set_sizes(base.seq));
  line.add("--heads", {"N,...", "query heads", "8", "16"}, set_sizes(base.heads));
  line.add("--kv-heads",
           {"N,...", "key and value heads (grouped-query attention)", "heads", "16,4"},
           set_sizes(base.kv_heads));
  line.add("--head-dim", {"N,...", "width of one head", "128, or --hidden / --heads", "64"},
           set_sizes(options.head_dim));
  line.add("--batch", {"N,...", "sequences", "1", "1,4"}, set_sizes(base.batch));
  line.add(
      "--window",
      {"N,...", "sliding window: a query sees keys less than N tokens away", "no limit", "512"},
      set_sizes(options.window));
  line.add(
      "--seqlens",
      {"N,...", "packed sequences, together --seq tokens; a query sees only its own. Not a sweep",
       "one sequence", "3k,1k,4k"},
      [&options](std::string_view option, const std::string& text) {
        for (const std::string& part : split_list(option, text))
          options.seqlens.push_back(parse_quantity(option, part));
      });
  line.add("--hidden", {"N,...", "--scope block: hidden width", "heads x head-dim", "2k"},
           set_sizes(base.hidden));
  line.add("--ffn", {"N,...", "--scope block: inner width of the MLP", "4 x hidden", "14336"},
           set_sizes(base.ffn));
  add_layer_kind_options(line, base);
  add_dtype_option(line, base);
}

CommandLine::Handler set_overlap(std::vector<bool>& into) {
  return [&into](std::string_view option, const std::string& text) {
    std::vector<bool> chosen;
    for (const std::string& part : split_list(option, text))
      for (const bool overlap : parse_choice<std::vector<bool>>(
               option, part, {{"off", {false}}, {"on", {true}}, {"both", {false, true}}}))
        if (std::ranges::find(chosen, overlap) == chosen.end()) chosen.push_back(overlap);
    into = chosen;
  };
}

void add_parallel_options(CommandLine& line, Options& options) {
  bench::Options& base = options.base;
  line.group("Parallelism");
  line.add("--kind",
           {"NAME,...", "how attention gets other ranks' keys: ring, ulysses, all-gather, hybrid",
            "ring,ulysses,all-gather", "ring,hybrid"},
           set_choices<ContextKind>(options.kinds, {{"ring", ContextKind::ring},
                                                    {"ulysses", ContextKind::ulysses},
                                                    {"all-gather", ContextKind::all_gather},
                                                    {"hybrid", ContextKind::hybrid}}));
  line.add("--order",
           {"NAME,...",
            "which tokens a rank holds: contiguous, zigzag, striped; causal work is unbalanced in "
            "the first; ulysses runs contiguous whatever is given",
            "zigzag", "contiguous,zigzag"},
           set_choices<TokenOrder>(options.orders, {{"contiguous", TokenOrder::contiguous},
                                                    {"zigzag", TokenOrder::zigzag},
                                                    {"striped", TokenOrder::striped}}));
  line.add("--cp",
           {"N,...", "context-parallel degrees; all run in one launch",
            "1 and the number of ranks / tp", "1,2,4"},
           set_counts(options.cp));
  line.add("--ulysses", {"N", "--kind hybrid: ranks that exchange heads; divides cp", "2", "4"},
           set_count(options.ulysses, 1));
  line.add(
      "--ulysses-outer",
      {"on|off",
       "--kind hybrid: those ranks are cp / ulysses apart, so that the rings are the neighbours",
       "off", "on"},
      set_choice<bool>(options.ulysses_outer, {{"off", false}, {"on", true}}));
  line.add("--tp", {"N,...", "tensor-parallel degrees; heads are split first", "1", "1,2"},
           set_counts(base.tp));
  line.add("--sp,--sequence-parallel",
           {"off|on,...", "--scope block: split the tokens of a rank over tp, too", "off", "on"},
           set_switches(base.sequence_parallel));
  line.add(
      "--overlap",
      {"off|on|both", "run the exchange of one part behind the attention to another", "on", "both"},
      set_overlap(base.overlap));
  line.add("--overlap-chunks",
           {"N",
            "with overlap: chunks of heads (Ulysses) and of tokens (tp); lowered to what divides "
            "them",
            "4", "2"},
           set_count(base.overlap_chunks, 1));
  add_launch_options(line, base);
}

void add_advice_option(CommandLine& line, Options& options) {
  line.group("Advice");
  line.add("--advise",
           {"",
            "instead of timing rows: measure links and attention for a second, and say what the "
            "shapes should expect of each kind, with formulas and inputs",
            "", ""},
           set_flag(options.advise));
}

/// Attention alone has heads, and nothing else of a block.
void check_scope(const bench::Options& base) {
  if (std::ranges::find(base.blocks, BlockKind::block) != base.blocks.end()) return;
  const bool splits_tokens = std::ranges::count(base.sequence_parallel, true) > 0;
  for (const auto& [given, name] : {std::pair{!base.hidden.empty(), "--hidden"},
                                    {!base.ffn.empty(), "--ffn"},
                                    {base.mlp.has_value(), "--mlp"},
                                    {base.gelu.has_value(), "--gelu"},
                                    {base.norm.has_value(), "--norm"},
                                    {base.positions.has_value(), "--positions"},
                                    {base.biases.has_value(), "--biases"},
                                    {splits_tokens, "--sp on"}})
    if (given)
      throw InputError{message(name,
                               " changes nothing: --scope attention is attention alone, on q, "
                               "k and v of --heads, --kv-heads and --head-dim; add --scope block, "
                               "or leave it out")};
}

void check(const Options& options) {
  check_contradictions(options.base);
  check_scope(options.base);
  if (!options.advise) return;
  for (const auto& [given, name] : {std::pair{options.base.dry_run, "--dry-run"},
                                    {!options.base.dump.empty(), "--dump"},
                                    {!options.base.out.empty(), "--out"},
                                    {options.base.machine.has_value(), "--predict"},
                                    {!options.base.runner.plans.algorithms.empty(), "--algorithm"}})
    if (given)
      throw InputError{message("--advise measures no rows for ", name, "; leave out one of them")};
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  options.base.tool = Tool::cp;
  options.base.blocks = {BlockKind::attention_core};
  options.base.overlap = {true};
  CommandLine line{{std::string{name_of(Tool::cp)}, description, examples}};
  add_shape_options(line, options);
  add_parallel_options(line, options);
  add_advice_option(line, options);
  add_measurement_options(line, options.base);
  add_prediction_options(line, options.base);
  add_output_options(line, options.base);
  add_testing_options(line, options.base);
  options.base.print = line.parse(arguments);
  check(options);
  return options;
}

std::vector<int> tp_degrees(const Options& options) {
  std::vector<int> degrees = options.base.tp.empty() ? std::vector{1} : options.base.tp;
  std::ranges::sort(degrees);
  return degrees;
}

std::vector<int> cp_degrees(const Options& options, int tp, int world_size) {
  std::vector<int> degrees = options.cp;
  if (degrees.empty()) {
    degrees = {1};
    if (world_size / tp > 1) degrees.push_back(world_size / tp);
  }
  std::ranges::sort(degrees);
  return degrees;
}

LaunchRequest launch_request(const Options& options) {
  const int ranks = options.cp.empty() ? std::max(default_ranks(), tp_degrees(options).back())
                                       : std::ranges::max(options.cp) * tp_degrees(options).back();
  return {std::string{name_of(Tool::cp)}, options.base.transport, options.base.ranks,
          options.base.machine ? 1 : ranks};
}

}  // namespace shardmark::bench::context
