#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace shardmark {

/// Something the program itself got wrong, or a library call that failed. `what()` is one sentence
/// with the values involved; `where()` is "file:line".
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, std::string where = {})
      : std::runtime_error{what}, where_{std::move(where)} {}
  [[nodiscard]] const std::string& where() const { return where_; }

 private:
  std::string where_;
};

/// The user asked for something impossible. The message names the value, the rule and what would
/// work. Programs exit with code 2; inside a sweep it becomes a row with `status=skipped`.
class InputError : public Error {
 public:
  using Error::Error;
};

/// A peer died or did not answer in time. The message names lane, op path and rank.
class PeerError : public Error {
 public:
  using Error::Error;
};

/// The PeerError of the rank that waited too long; the others only learn that it gave up.
class TimeoutError : public PeerError {
 public:
  using PeerError::PeerError;
};

/// Streams every argument into one string: `message("hidden ", 1000, " ...")`.
template <class... Parts>
[[nodiscard]] std::string message(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

/// Throws Error with file, line, the failing expression and the message.
[[noreturn]] void fail_check(const char* expression, const char* file, int line,
                             const std::string& what);

}  // namespace shardmark

/// Always on. The message arguments are streamed only when the condition is false.
#define SHARDMARK_CHECK(condition, ...)                                                           \
  do {                                                                                            \
    if (!(condition)) [[unlikely]]                                                                \
      ::shardmark::fail_check(#condition, __FILE__, __LINE__, ::shardmark::message(__VA_ARGS__)); \
  } while (false)
