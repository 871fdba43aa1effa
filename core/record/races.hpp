#pragma once

#include "core/record.hpp"

#include <span>
#include <string>
#include <vector>

namespace shardmark {

/// Finds accesses of one rank that nothing orders. Two ops conflict when both touch an element and
/// at least one writes it; they are ordered when they run on one lane, or when a chain of Signal
/// and Await leads from one to the other.
///
/// `ops` are one rank's records in submission order. Returns one sentence per pair of ops, in
/// submission order of the later one, plus one per Await whose fence was not signalled before it.
/// Empty: race-free. An access hidden behind a newer one of the same elements is not looked at
/// again, so one missing fence need not list every pair it leaves unordered, but always one.
[[nodiscard]] std::vector<std::string> find_races(std::span<const OpRecord> ops);

}  // namespace shardmark
