#include "bench/pipeline/options.hpp"

#include "bench/harness/handlers.hpp"
#include "bench/pipeline/schedules.hpp"
#include "layers/presets.hpp"

#include <algorithm>

namespace shardmark::bench::pp {
namespace {

constexpr const char* description =
    "shardmark-pp: run pipeline schedules over the stages of a transformer, forward and backward,\n"
    "and say where the time goes.\n"
    "Options that take N,... or NAME,... sweep: every combination is one row of the result.\n"
    "In sizes k is 1024 and m is 1024 x 1024.";

constexpr const char* examples =
    "Examples:\n"
    "  shardmark-pp --ranks 2\n"
    "      1F1B on two threads of this process\n"
    "  mpirun -n 2 shardmark-pp --schedule gpipe,1f1b,zb-h1,zb-v --microbatches 4,8 --out run\n"
    "      a sweep on two MPI ranks; table on stdout, files in run/\n"
    "  mpirun -n 4 shardmark-pp --pp 2 --tp 2 --schedule interleaved --chunks 2,4\n"
    "      two stages of a rank pair each, every rank with 2 or 4 chunks of the model\n"
    "  mpirun -n 3 shardmark-pp --vocab 32k --balance count,measured\n"
    "      blocks by count, and by what embedding, block and head took\n"
    "  shardmark-pp --schedule 1f1b,zb-v --pp 4 --microbatches 8 --print-schedule grid\n"
    "      who does what when; executes nothing\n"
    "  shardmark-pp --schedule zb-h1 --pp 3 --print-schedule csv > mine.csv\n"
    "  mpirun -n 3 shardmark-pp --schedule-file mine.csv\n"
    "      edit a schedule and run it\n"
    "  mpirun -n 2 shardmark-pp --mode infer --tp 1,2 --microbatches 1,2,4\n"
    "      time to first token and per token: pp 2 against tp 2, one request and several at once\n"
    "  mpirun -n 4 shardmark-pp --backend cuda --dtype bf16 --hidden 4k --seq 4k\n"
    "      on GPUs, bytes by NCCL; --transport staged lets ranks share one\n"
    "  shardmark-pp --dry-run --model gpt3-175b --pp 16 --tp 8 --microbatches 32\n"
    "      operations, FLOPs, bytes and memory of each rank; nothing is executed\n"
    "Exit code: 0 done, 1 a row failed or an error, 2 bad input, 128 + signal interrupted.";

constexpr std::int64_t default_layers = 8, default_hidden = 512, default_seq = 256,
                       default_vocab = 1024;
constexpr int default_tokens = 32;

void add_model_options(CommandLine& line, Options& all) {
  bench::Options& options = all.base;
  line.group("Shapes");
  add_model_option(line, options);
  line.add("--layers", {"N,...", "transformer blocks; every stage needs one", "8", "24"},
           set_sizes(options.layers));
  line.add("--hidden", {"N,...", "hidden width", "512", "1k,2k"}, set_sizes(options.hidden));
  add_head_options(line, options);
  line.add("--ffn", {"N,...", "inner width of the MLP", "4 x hidden", "14336"},
           set_sizes(options.ffn));
  add_layer_kind_options(line, options);
  line.add("--vocab",
           {"N,...",
            "vocabulary; small unless given, so that the head does not outweigh the blocks. A "
            "model's own is padded to a multiple of 128 x tp",
            "1k", "32k"},
           set_sizes(options.vocab));
  line.add("--tie-embeddings",
           {"on|off", "the head's matrix is the embedding's table; their gradients are summed",
            "off", "on"},
           set_choice<bool>(all.tie_embeddings, {{"on", true}, {"off", false}}));
  line.add("--seq", {"N,...", "sequence length (tokens)", "256", "512,1k"}, set_sizes(options.seq));
  line.add("--batch", {"N,...", "sequences of a micro-batch", "1", "1,4"},
           set_sizes(options.batch));
  add_dtype_option(line, options);
}

Choices<pipeline::ScheduleKind> schedule_names() {
  Choices<pipeline::ScheduleKind> names;
  for (const pipeline::ScheduleFacts& facts : pipeline::schedules())
    names.emplace_back(facts.name, facts.kind);
  return names;
}

std::string list_schedules() {
  std::string text;
  for (const pipeline::ScheduleFacts& facts : pipeline::schedules())
    text += message(facts.name, ": ", facts.about, '\n');
  return text;
}

void add_schedule_options(CommandLine& line, Options& options) {
  line.group("Schedules");
  std::string names;
  for (const auto& [name, kind] : schedule_names())
    names += message(names.empty() ? "" : ", ", name);
  line.add("--schedule",
           {"NAME,...", message("order of forwards and backwards: ", names),
            "1f1b, unless a file is given", "gpipe,1f1b,zb-v"},
           set_choices(options.kinds, schedule_names()));
  line.add("--schedule-file",
           {"FILE", "a schedule in PyTorch's pipeline CSV; it says pp and micro-batches", "none",
            "mine.csv"},
           [&options](std::string_view option, const std::string& text) {
             try {
               options.file = std::make_shared<const ScheduleFile>(load_schedule(text));
             } catch (const InputError& error) {
               throw InputError{message(option, ' ', text, ": ", error.what())};
             }
           });
  line.add("--microbatches",
           {"N,...", "micro-batches of an iteration; --mode infer: requests at once",
            "8; infer: 1,4", "4,8,16"},
           set_counts(options.micro));
  line.add("--chunks",
           {"N,...", "stages of a rank, for schedules that have several (interleaved; V shapes: 2)",
            "2", "2,4"},
           set_counts(options.chunks));
  line.add(
      "--fit",
      {"",
       "zb-h1, zb-h2, zb-v, v-half, v-min: profile the parts of the model and a message first, "
       "and order forwards and gradients for these times instead of equal ones",
       "", ""},
      set_flag(options.fit));
  line.add("--memory-limit",
           {"N", "the same schedules: activations (of a stage and micro-batch) a rank may hold",
            "each schedule's own", "4"},
           set_count(options.memory_limit, 1));
  line.add("--recompute",
           {"NAME,...",
            "what backward runs again instead of keeping it: none, selective (the attention core), "
            "full (whole blocks); for schedules whose backward is one piece",
            "none", "none,full"},
           set_choices<Recompute>(options.recompute, {{"none", Recompute::none},
                                                      {"selective", Recompute::selective},
                                                      {"full", Recompute::full}}));
  line.add("--p2p",
           {"NAME,...",
            "messages of neighbours: split (each direction and end has its lane) or merged (one "
            "lane, a send and a receive beside each other are one exchange)",
            "split", "split,merged"},
           set_choices<pipeline::Lowering>(options.p2p, {{"split", pipeline::Lowering::split},
                                                         {"merged", pipeline::Lowering::merged}}));
  line.add(
      "--print-schedule",
      {"grid|csv|svg",
       "print the schedules instead of running them: who does what when, or text for "
       "--schedule-file, or a drawing; with --p2p the messages, too; with --fit those for the "
       "times "
       "that it profiles first",
       "no printing", "grid"},
      set_choice<PrintAs>(options.print,
                          {{"grid", PrintAs::grid}, {"csv", PrintAs::csv}, {"svg", PrintAs::svg}}));
}

void add_inference_options(CommandLine& line, Options& options) {
  line.group("Inference");
  line.add("--mode",
           {"train|infer",
            "infer: forward passes of --microbatches requests at once, of --batch sequences each; "
            "1 is a single request",
            "train", "infer"},
           set_choice<Mode>(options.mode, {{"train", Mode::train}, {"infer", Mode::infer}}));
  line.add("--step",
           {"NAME,...",
            "prefill: the prompt, --seq tokens, up to the first new token; decode: one token after "
            "another behind as many cached ones",
            "prefill,decode", "decode"},
           set_choices<InferenceStep>(options.steps, {{"prefill", InferenceStep::prefill},
                                                      {"decode", InferenceStep::decode}}));
  line.add("--tokens",
           {"N",
            "tokens that each request decodes in an iteration, all behind --seq cached ones: the "
            "cache does not grow",
            "32", "128"},
           set_count(options.tokens, 1));
}

void add_parallel_options(CommandLine& line, Options& options) {
  line.group("Parallelism");
  line.add("--pp",
           {"N,...", "pipeline degrees; all run in one launch",
            "the number of ranks / (tp x dp), or what the file is for", "1,2,4"},
           set_counts(options.pp));
  line.add("--tp", {"N,...", "tensor-parallel degrees, inside a stage", "1", "1,2"},
           set_counts(options.base.tp));
  line.add("--sequence-parallel",
           {"off|on,...", "split the tokens outside of the linears over the tp ranks, too", "off",
            "off,on"},
           set_switches(options.base.sequence_parallel));
  line.add("--dp",
           {"N,...", "copies of the pipeline; their gradients are summed at the end", "1", "1,2"},
           set_counts(options.dp));
  line.add("--balance",
           {"NAME,...",
            "which blocks a stage gets: by count, or measured: profile embedding, block and head "
            "first, then keep the slowest rank's cost least",
            "count", "count,measured"},
           set_choices<Balance>(options.balance,
                                {{"count", Balance::count}, {"measured", Balance::measured}}));
  line.add("--split", {"N,...", "blocks of each stage, as given", "see --balance", "9,8,8,7"},
           [&options](std::string_view option, const std::string& text) {
             for (const std::string& part : split_list(option, text))
               options.split.push_back(parse_count(option, part, 1));
           });
  add_launch_options(line, options.base);
}

void check_file(const Options& options) {
  if (!options.file) return;
  const pipeline::Schedule& schedule = options.file->schedule;
  if (schedule.lowering == pipeline::Lowering::none) return;
  if (options.p2p.empty() || options.p2p == std::vector{schedule.lowering}) return;
  throw InputError{message("--p2p: ", options.file->name, " has its messages already, ",
                           name_of(schedule.lowering), "; leave out --p2p")};
}

/// Throws if an option is given that the other mode is for.
void check_mode(const Options& options) {
  const auto refuse = [](std::string_view name, std::string_view why) {
    throw InputError{message(name, ' ', why, "; leave out ", name)};
  };
  const auto is_given = [](const auto& list) { return !list.empty(); };
  const bool shards_tokens = options.base.sequence_parallel != std::vector{false};
  if (options.mode == Mode::train) {
    if (is_given(options.steps)) refuse("--step", "is for --mode infer");
    if (options.tokens > 0) refuse("--tokens", "is for --mode infer");
    return;
  }
  for (const auto& [given, name] : {std::pair{is_given(options.kinds), "--schedule"},
                                    {options.file != nullptr, "--schedule-file"},
                                    {is_given(options.chunks), "--chunks"},
                                    {is_given(options.p2p), "--p2p"},
                                    {is_given(options.recompute), "--recompute"},
                                    {options.fit, "--fit"},
                                    {options.memory_limit > 0, "--memory-limit"},
                                    {options.print.has_value(), "--print-schedule"},
                                    {options.tie_embeddings, "--tie-embeddings"},
                                    {shards_tokens, "--sequence-parallel"},
                                    {!options.base.dump.empty(), "--dump"}})
    if (given)
      refuse(name,
             "is about training; --mode infer has forward passes only, of one stage per rank");
  if (options.dp != std::vector{1})
    refuse("--dp", "makes copies of a pipeline, which share nothing in --mode infer");
  if (std::ranges::find(options.balance, Balance::measured) != options.balance.end())
    throw InputError{
        "--balance measured profiles forward and backward, and --mode infer has forward passes "
        "only; give a --split"};
  if (options.tokens > 0 && options.steps == std::vector{InferenceStep::prefill})
    refuse("--tokens", "is for --step decode, and prefill makes one");
}

void check(const Options& options) {
  check_contradictions(options.base);
  check_mode(options);
  for (const std::string& model : options.base.models) (void)find_model(model);
  check_file(options);
  if (!options.split.empty() && !options.balance.empty())
    throw InputError{"--split says which blocks a stage gets; leave out --balance"};
  if (options.base.machine &&
      std::ranges::find(options.balance, Balance::measured) != options.balance.end())
    throw InputError{"--predict runs nothing for --balance measured to profile; give a --split"};
  if (options.base.machine && options.fit)
    throw InputError{"--predict runs nothing for --fit to profile; leave out one of them"};
  const bool fits = options.fit || options.memory_limit > 0;
  if (fits && std::ranges::none_of(options.kinds, can_fit))
    throw InputError{message(options.fit ? "--fit" : "--memory-limit",
                             " is for zb-h1, zb-h2, zb-v, v-half and v-min; give one of them with "
                             "--schedule")};
  if (!options.print) return;
  for (const auto& [given, name] : {std::pair{options.base.dry_run, "--dry-run"},
                                    {!options.base.dump.empty(), "--dump"},
                                    {!options.base.out.empty(), "--out"},
                                    {options.base.machine.has_value(), "--predict"}})
    if (given)
      throw InputError{
          message("--print-schedule runs nothing for ", name, "; leave out one of them")};
}

void set_defaults(Options& options) {
  bench::Options& base = options.base;
  const bool infers = options.mode == Mode::infer;
  if (options.kinds.empty() && !options.file) options.kinds = {pipeline::ScheduleKind::one_f_one_b};
  if (options.micro.empty() && infers) options.micro = {1, 4};
  if (options.micro.empty()) options.micro = {options.file ? options.file->schedule.num_micro : 8};
  if (options.tokens == 0) options.tokens = default_tokens;
  if (options.chunks.empty()) options.chunks = {0};
  if (options.balance.empty())
    options.balance = {options.split.empty() ? Balance::count : Balance::given};
  if (options.recompute.empty()) options.recompute = {Recompute::none};
  if (options.steps.empty()) options.steps = {InferenceStep::prefill, InferenceStep::decode};
  if (base.tp.empty()) base.tp = {1};
  std::ranges::sort(base.tp);
  if (!base.models.empty()) return;
  const auto or_else = [](std::vector<std::int64_t>& values, std::int64_t value) {
    if (values.empty()) values = {value};
  };
  or_else(base.layers, default_layers);
  or_else(base.hidden, default_hidden);
  or_else(base.seq, default_seq);
  or_else(base.vocab, default_vocab);
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  options.base.tool = Tool::pp;
  options.base.blocks = {BlockKind::model};
  CommandLine line{{std::string{name_of(Tool::pp)}, description, examples}};
  add_schedule_options(line, options);
  add_inference_options(line, options);
  add_model_options(line, options);
  add_parallel_options(line, options);
  add_measurement_options(line, options.base);
  add_prediction_options(line, options.base);
  add_output_options(line, options.base);
  line.add_print("--list-schedules", "print the schedules and what they trade", list_schedules);
  add_testing_options(line, options.base);
  options.base.print = line.parse(arguments);
  check(options);
  set_defaults(options);
  return options;
}

std::vector<int> pp_degrees(const Options& options, int tp, int dp, int world_size) {
  std::vector<int> degrees = options.pp;
  if (degrees.empty())
    degrees = {options.file ? options.file->schedule.num_ranks()
                            : std::max(1, world_size / (tp * dp))};
  std::ranges::sort(degrees);
  return degrees;
}

LaunchRequest launch_request(const Options& options) {
  const int others = options.base.tp.back() * std::ranges::max(options.dp);
  const bool is_open = options.pp.empty() && !options.file;
  const int ranks = is_open ? std::max(default_ranks() / others, 1) * others
                            : pp_degrees(options, 1, 1, 1).back() * others;
  return {std::string{name_of(Tool::pp)}, options.base.transport, options.base.ranks,
          options.base.machine ? 1 : ranks};
}

}  // namespace shardmark::bench::pp
