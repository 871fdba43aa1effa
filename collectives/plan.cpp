#include "collectives/plan.hpp"

#include "collectives/generators_internal.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <array>
#include <numeric>

namespace shardmark {
namespace {

template <Collective... collectives>
bool one_of(Collective collective) {
  return ((collective == collectives) || ...);
}

int blocks(bool has_n_blocks, Collective collective, int num_ranks) {
  if (collective == Collective::barrier) return 0;
  return has_n_blocks ? num_ranks : 1;
}

/// A group of one: the input is the output.
Plan copying(Collective collective, const Algorithm& algorithm) {
  PlanBuilder plan{collective, std::string{algorithm.name}, 1, 0, 1, 0};
  plan.next_rank();
  if (collective != Collective::barrier) plan.copy(0, 1, 1);
  return std::move(plan).finish();
}

using enum Collective;
constexpr std::array<Algorithm, 11> table{{
    {"ring", "large sizes: every link carries the least bytes, in n - 1 steps per phase",
     one_of<all_reduce, all_gather, reduce_scatter, broadcast, reduce>, generators::ring},
    {"recursive_doubling", "small sizes: log2 n steps, all_reduce sends the whole buffer in each",
     one_of<all_reduce, all_gather>, generators::recursive_doubling},
    {"halving_doubling", "middle sizes on powers of two: the ring's bytes in 2 log2 n steps",
     one_of<all_reduce, reduce_scatter>, generators::halving_doubling},
    {"bruck", "small sizes on any number of ranks: log2 n steps; copies blocks about",
     one_of<all_gather, all_to_all>, generators::bruck},
    {"binomial", "small sizes with a root: log2 n steps",
     one_of<broadcast, reduce, gather, scatter, all_reduce>, generators::binomial},
    {"double_tree", "large sizes on many ranks: log n latency at nearly full bandwidth",
     one_of<all_reduce, broadcast, reduce>, generators::double_tree},
    {"hierarchical", "several ranks per host: least bytes between hosts",
     one_of<all_reduce, all_gather, reduce_scatter, broadcast, reduce>, generators::hierarchical},
    {"hierarchical_pipelined", "the same for large sizes: links and hosts work at the same time",
     one_of<all_reduce>, generators::hierarchical_pipelined},
    {"pairwise", "large blocks: each block goes straight to its place, in n - 1 steps",
     one_of<all_to_all, all_to_all_v>, generators::pairwise},
    {"two_level", "small blocks, several ranks per host: one message per pair of hosts and rank",
     one_of<all_to_all>, generators::two_level},
    {"dissemination", "log2 n rounds of empty messages", one_of<barrier>,
     generators::dissemination},
}};

}  // namespace

int Plan::num_input() const {
  return slots_per_block * blocks(facts_of(collective).input_has_n_blocks, collective, num_ranks);
}

int Plan::num_output() const {
  return slots_per_block * blocks(facts_of(collective).output_has_n_blocks, collective, num_ranks);
}

bool Plan::has_input(int rank) const {
  return rank == root || (collective != Collective::broadcast && collective != Collective::scatter);
}

bool Plan::has_output(int rank) const {
  return rank == root || (collective != Collective::reduce && collective != Collective::gather);
}

std::int64_t Plan::slots_sent(int rank) const {
  std::int64_t sent = 0;
  for (const Step& step : steps_of(rank))
    if (step.kind == Step::Kind::exchange && step.to >= 0) sent += step.count;
  return sent;
}

PlanBuilder::PlanBuilder(Collective collective, std::string algorithm, int num_ranks, int root,
                         int slots_per_block, int num_scratch) {
  plan_.collective = collective;
  plan_.algorithm = std::move(algorithm);
  plan_.num_ranks = num_ranks;
  plan_.root = root;
  plan_.slots_per_block = slots_per_block;
  plan_.num_scratch = num_scratch;
  plan_.first.reserve(static_cast<std::size_t>(num_ranks) + 1);
}

void PlanBuilder::next_rank() {
  // All ranks of a plan have about as many steps as the first one.
  if (plan_.first.size() == 1)
    plan_.steps.reserve(plan_.steps.size() * static_cast<std::size_t>(plan_.num_ranks));
  plan_.first.push_back(plan_.steps.size());
}

void PlanBuilder::exchange(int to, int source, int count, int from, int target, int count_in,
                           Step::Receive receive) {
  // What a missing side would have is always the same, so that equal steps compare equal.
  Step step{Step::Kind::exchange, Step::Receive::store, 0, -1, -1, 0, 0, 0, 0};
  if (to >= 0) step.to = to, step.source = source, step.count = count;
  if (from >= 0) {
    step.from = from, step.target = target, step.count_in = count_in;
    step.receive = receive;
  }
  plan_.steps.push_back(step);
}

void PlanBuilder::send(int to, int source, int count) {
  exchange(to, source, count, -1, 0, 0, Step::Receive::store);
}

void PlanBuilder::receive(int from, int target, int count, Step::Receive receive) {
  exchange(-1, 0, 0, from, target, count, receive);
}

void PlanBuilder::copy(int source, int target, int count) {
  plan_.steps.push_back(
      {Step::Kind::copy, Step::Receive::store, 0, -1, -1, source, target, count, 0});
}

Plan PlanBuilder::finish() && {
  SHARDMARK_CHECK(plan_.first.size() == static_cast<std::size_t>(plan_.num_ranks), "a plan of ",
                  plan_.num_ranks, " ranks has steps of ", plan_.first.size());
  plan_.first.push_back(plan_.steps.size());
  return std::move(plan_);
}

std::span<const Algorithm> algorithms() { return table; }

std::vector<std::string_view> algorithm_names(Collective collective) {
  std::vector<std::string_view> names;
  for (const Algorithm& algorithm : table)
    if (algorithm.supports(collective)) names.push_back(algorithm.name);
  return names;
}

Plan make_plan(Collective collective, std::string_view algorithm, std::span<const int> hosts,
               int root) {
  const int n = static_cast<int>(hosts.size());
  if (n < 1) throw InputError{"a plan needs one rank or more"};
  if (root < 0 || root >= n)
    throw InputError{message("root ", root, " is not one of the ranks 0 to ", n - 1)};
  const auto found = std::ranges::find_if(
      table, [&](const Algorithm& a) { return a.name == algorithm && a.supports(collective); });
  if (found == table.end()) {
    std::string known;
    for (const std::string_view name : algorithm_names(collective))
      known += message(known.empty() ? "" : ", ", name);
    throw InputError{message("there is no algorithm '", algorithm, "' for ", name_of(collective),
                             "; there is native", known.empty() ? "" : ", ", known)};
  }
  return n == 1 ? copying(collective, *found)
                : found->make(collective, hosts, facts_of(collective).has_root ? root : 0);
}

namespace generators {

Regions regions_of(Collective collective, int num_ranks, int slots_per_block) {
  const CollectiveFacts& facts = facts_of(collective);
  Regions regions;
  regions.output = slots_per_block * blocks(facts.input_has_n_blocks, collective, num_ranks);
  regions.scratch =
      regions.output + slots_per_block * blocks(facts.output_has_n_blocks, collective, num_ranks);
  return regions;
}

std::vector<int> everyone(int num_ranks) {
  std::vector<int> members(static_cast<std::size_t>(num_ranks));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

Chunks Chunks::even(int slot, int number, int count) {
  Chunks chunks;
  for (int chunk = 0; chunk < number; ++chunk) {
    chunks.begin_chunk();
    chunks.add(slot + chunk * count, count);
  }
  return chunks;
}

void Chunks::add(int slot, int count) {
  if (runs_.size() > first_.back() && runs_.back().slot + runs_.back().count == slot)
    runs_.back().count += count;
  else
    runs_.push_back({slot, count});
}

std::span<const Chunks::Run> Chunks::operator[](int chunk) const {
  const auto i = static_cast<std::size_t>(chunk);
  const std::size_t end = i + 1 < first_.size() ? first_[i + 1] : runs_.size();
  return {runs_.data() + first_[i], end - first_[i]};
}

void exchange_chunks(PlanBuilder& plan, int to, std::span<const Chunks::Run> out, int from,
                     std::span<const Chunks::Run> in, Step::Receive receive) {
  for (std::size_t i = 0; i < std::max(out.size(), in.size()); ++i) {
    const bool sends = i < out.size(), receives = i < in.size();
    const Chunks::Run leaving = sends ? out[i] : Chunks::Run{0, 0};
    const Chunks::Run coming = receives ? in[i] : Chunks::Run{0, 0};
    plan.exchange(sends ? to : -1, leaving.slot, leaving.count, receives ? from : -1, coming.slot,
                  coming.count, receives ? receive : Step::Receive::store);
  }
}

}  // namespace generators
}  // namespace shardmark
