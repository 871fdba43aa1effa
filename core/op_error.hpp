#pragma once

#include "core/error.hpp"
#include "core/record.hpp"

#include <string>

namespace shardmark {

/// The op's path; "-" at the top.
[[nodiscard]] inline const std::string& path_of(const OpRecord& record) {
  static const std::string none = "-";
  return record.path == nullptr || record.path->empty() ? none : *record.path;
}

/// Runs `action` as a part of this op: an error gets the op's path and name and keeps its type.
/// `has_path` is set then; where it is set already, errors pass as they are.
template <class Action>
auto run_as_part_of(const OpRecord& record, bool& has_path, const Action& action) {
  const auto text = [&](const Error& error) {
    has_path = true;
    return message(path_of(record), ": ", name_of(record.op), ": ", error.what());
  };
  try {
    return action();
  } catch (const TimeoutError& error) {
    if (has_path) throw;
    throw TimeoutError{text(error), error.where()};
  } catch (const PeerError& error) {
    if (has_path) throw;
    throw PeerError{text(error), error.where()};
  } catch (const InputError& error) {
    if (has_path) throw;
    throw InputError{text(error), error.where()};
  } catch (const Error& error) {
    if (has_path) throw;
    throw Error{text(error), error.where()};
  }
}

}  // namespace shardmark
