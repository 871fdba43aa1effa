#include "core/transport.hpp"

#include "core/error.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

namespace shardmark {

std::vector<std::byte> Transport::exchange(std::span<const std::byte> mine, Waiting waiting) {
  std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(size_));
  start_exchange(mine, all);
  Waiter waiter{*this, waiting};
  while (!test_exchange()) waiter.pause([] { return std::string{"the other ranks (barrier)"}; });
  return all;
}

void Transport::barrier(Waiting waiting) {
  const std::byte token{};
  (void)exchange({&token, 1}, waiting);
}

std::vector<double> Transport::gather(double value) {
  const std::vector<std::byte> all = exchange(std::as_bytes(std::span{&value, 1}));
  std::vector<double> values(static_cast<std::size_t>(size_));
  std::memcpy(values.data(), all.data(), all.size());
  return values;
}

double Transport::maximum(double value) { return std::ranges::max(gather(value)); }
double Transport::sum(double value) {
  const std::vector<double> values = gather(value);
  return std::accumulate(values.begin(), values.end(), 0.0);
}

std::vector<std::string> Transport::gather(const std::string& mine, Waiting waiting) {
  const std::uint64_t length = mine.size();
  const auto packed_lengths = exchange(std::as_bytes(std::span{&length, 1}), waiting);
  std::vector<std::uint64_t> lengths(static_cast<std::size_t>(size_));
  std::memcpy(lengths.data(), packed_lengths.data(), packed_lengths.size());
  const std::size_t longest = std::ranges::max(lengths);
  std::string padded = mine;
  padded.resize(longest);
  const auto all = exchange(std::as_bytes(std::span{padded}), Waiting::active);
  std::vector<std::string> result;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank)
    result.emplace_back(reinterpret_cast<const char*>(all.data()) + rank * longest, lengths[rank]);
  return result;
}

std::string Transport::broadcast(const std::string& from_rank_0, Waiting waiting) {
  return gather(rank_ == 0 ? from_rank_0 : std::string{}, waiting).front();
}

void Transport::count(const Op& op) { bytes_started_ += bytes_sent_of(op); }

std::string Waiter::describe_timeout(double timeout_s) {
  timed_out_ = true;
  transport_.activity().rest();
  const std::string silent = transport_.give_up();
  return message("no answer for ", timeout_s, " s (--timeout)",
                 silent.empty() ? "" : "; no sign of life from ", silent);
}

std::string Waiter::rest() {
  if (waiting_ == Transport::Waiting::idle)
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  else if (yield_)
    sched_yield();
  if (waiting_ == Transport::Waiting::active && yield_ && looks_ % 64 != 0) return {};
  const Clock::time_point now = Clock::now();
  if (begin_ == Clock::time_point{}) {
    begin_ = now;
    next_check_ = now + std::chrono::milliseconds{250};
  }
  if (now < next_check_) return {};
  next_check_ = now + std::chrono::milliseconds{250};
  transport_.activity().tick();
  // A peer may do its part and then end between our look and this check: believe it dead only if
  // another 250 ms of looking changed nothing.
  if (std::string dead = transport_.find_dead_peer(); !dead.empty()) {
    if (suspicious_) return dead;
    suspicious_ = true;
    return {};
  }
  const double waited_s = std::chrono::duration<double>(now - begin_).count();
  const double timeout_s = transport_.wait_policy().timeout_s;
  if (waiting_ == Transport::Waiting::active && waited_s > timeout_s)
    return describe_timeout(timeout_s);
  return {};
}

void Waiter::fail(const std::string& problem, const std::string& what) const {
  transport_.withdraw();
  const std::string text = message(problem, " while waiting for ", what);
  if (timed_out_) throw TimeoutError{text};
  throw PeerError{text};
}

}  // namespace shardmark
