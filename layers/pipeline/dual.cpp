// DualPipe and DualPipeV: forwards run together with backwards (F&B), so that the communication
// inside one is hidden behind the other's compute.
//
// DualPipe: half of the micro-batches start at rank 0, the others at rank p - 1; each stage is on
// two ranks, whose gradients must be added. Bubble (p/2 - 1)(F&B + B - 3W), p + 1 activations,
// parameters twice. p and m even, m >= 2p. DualPipeV: the lower half of that, folded: p ranks with
// 2p stages in a V, one direction. Bubble (p - 1)(F&B + B - 3W) in times of a (half as large)
// stage. m >= 2p. Source: DeepSeek-V3, arXiv 2412.19437 section 3.2.1; the phases follow
// github.com/deepseek-ai/ DualPipe.

#include "layers/pipeline/generators_internal.hpp"

namespace shardmark::pipeline::generators {
namespace {

/// One of the two flows that a rank works on: its stage there and its micro-batches, in order.
struct Flow {
  int stage;
  int first_micro;
  int num_forwards{0}, num_backwards{0};
  Action forward() { return {Act::F, stage, first_micro + num_forwards++}; }
  Action backward(Act act) { return {act, stage, first_micro + num_backwards++}; }
};

class DualRank {
 public:
  /// `near` is the flow that enters at this rank's end of the line, `far` the other one.
  DualRank(std::vector<Step>& steps, Flow near, Flow far) : steps_{steps}, near_{near}, far_{far} {}

  /// `index` counts ranks from that end, 0 to half - 1; `micro` micro-batches per flow.
  void make(int half, int index, int micro) {
    const int inner = half - 1 - index;
    repeat(2 * inner, [&] { forward(near_); });
    repeat(index + 1, [&] {
      forward(near_);
      forward(far_);
    });
    repeat(inner, [&] {
      backward(far_, true);
      weight();
      forward(far_);
    });
    const bool is_middle = inner == 0;
    for (int i = 0; i < micro - 2 * half + index + 1; ++i) {
      // In the middle the first gradient comes from the forward just before.
      if (i == 0 && is_middle) {
        forward(near_);
        backward(far_, false);
      } else {
        both(near_, far_);
      }
      both(far_, near_);
    }
    repeat(inner, [&] {
      backward(far_, false);
      both(far_, near_);
    });
    // Of the last backwards the second half leaves its weight gradients for the end.
    for (int i = 0; i < 2 * (index + 1); ++i) backward(i % 2 == 0 ? far_ : near_, i > index);
    repeat(inner, [&] {
      weight();
      backward(near_, true);
    });
    repeat(index + 1, [&] { weight(); });
  }

 private:
  template <class Body>
  static void repeat(int times, Body&& body) {
    for (int i = 0; i < times; ++i) body();
  }

  void forward(Flow& flow) { steps_.push_back({flow.forward(), {}}); }
  void backward(Flow& flow, bool split) {
    steps_.push_back({flow.backward(split ? Act::I : Act::B), {}});
    const Action& action = steps_.back().action;
    if (split) weights_.push_back({Act::W, action.stage, action.micro});
  }
  void both(Flow& forwards, Flow& backwards) {
    const Action forward = forwards.forward();
    steps_.push_back({forward, backwards.backward(Act::B)});
  }
  void weight() { steps_.push_back({weights_[num_weights_++], {}}); }

  std::vector<Step>& steps_;
  Flow near_, far_;
  std::vector<Action> weights_;
  std::size_t num_weights_{0};
};

}  // namespace

Schedule dualpipe(const Request& request) {
  const int p = request.ranks, half = p / 2, per_flow = request.micro / 2;
  Schedule schedule = empty_loop("dualpipe", p, 1, request.micro);
  for (int stage = 0; stage < p; ++stage) schedule.rank_of_second_copy.push_back(p - 1 - stage);
  for (int rank = 0; rank < p; ++rank) {
    const Flow down{rank, 0}, up{p - 1 - rank, per_flow};
    const bool upper = rank < half;
    DualRank{schedule.ranks[static_cast<std::size_t>(rank)], upper ? down : up, upper ? up : down}
        .make(half, upper ? rank : p - 1 - rank, per_flow);
  }
  return schedule;
}

Schedule dualpipe_v(const Request& request) {
  const int p = request.ranks;
  Schedule schedule = empty_v("dualpipe-v", p, request.micro);
  for (int rank = 0; rank < p; ++rank)
    DualRank{schedule.ranks[static_cast<std::size_t>(rank)], Flow{rank, 0},
             Flow{2 * p - 1 - rank, 0}}
        .make(p, rank, request.micro);
  return schedule;
}

}  // namespace shardmark::pipeline::generators
