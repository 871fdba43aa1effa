#pragma once

#include <dlfcn.h>

#include <string>

namespace shardmark {

/// Takes functions from a library that was loaded with dlopen, and notes the first that it lacks.
class Symbols {
 public:
  explicit Symbols(void* library) : library_{library} {}
  /// Null if it is lacking.
  template <class Function>
  void take(Function& function, const char* name) {
    void* const symbol = dlsym(library_, name);
    if (symbol == nullptr && missing_.empty()) missing_ = name;
    function = reinterpret_cast<Function>(symbol);
  }
  /// The first function that was not there; empty if all were.
  [[nodiscard]] const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

}  // namespace shardmark
