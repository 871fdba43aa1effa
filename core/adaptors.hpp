#pragma once

// Backends that wrap another one. Each forwards memory and synchronisation and changes what happens
// to an op. They stack; the inner backend must outlive the adaptor.

#include "core/backend.hpp"
#include "core/transport.hpp"

#include <cstdint>
#include <optional>
#include <string_view>

namespace shardmark {

/// Forwards everything: the base of the others.
class BackendAdaptor : public Backend {
 public:
  explicit BackendAdaptor(Backend& inner) : inner_{inner} {}

  std::byte* allocate(std::int64_t bytes, Category category) override {
    return inner_.allocate(bytes, category);
  }
  void deallocate(std::byte* data, std::int64_t bytes) noexcept override {
    inner_.deallocate(data, bytes);
  }
  void execute(const OpRecord& record) override { inner_.execute(record); }
  void synchronize() override { inner_.synchronize(); }
  void write(const Tensor& to, const void* from) override { inner_.write(to, from); }
  void read(const Tensor& from, void* to) override { inner_.read(from, to); }
  [[nodiscard]] std::uint32_t first_fence() const override { return inner_.first_fence(); }

 protected:
  [[nodiscard]] Backend& inner() { return inner_; }

 private:
  Backend& inner_;
};

/// Keeps ops of one kind and drops the other; Signal and Await always pass, so lanes stay ordered
/// as they were. Gives the compute-only and communication-only baselines of a program.
class FilterBackend final : public BackendAdaptor {
 public:
  FilterBackend(Backend& inner, std::optional<OpKind> keep) : BackendAdaptor{inner}, keep_{keep} {}
  /// From now on; nothing means every op passes. Not while ops are queued.
  void set_keep(std::optional<OpKind> keep) { keep_ = keep; }
  void execute(const OpRecord& record) override;

 private:
  std::optional<OpKind> keep_;
};

/// Runs every op to its end and looks at what it wrote: throws Error naming rank, op path, op,
/// output and element at the first NaN. Infinity is allowed: masks and log-sum-exp use it. Slow,
/// and nothing overlaps; ops must be submitted in an order that can run one by one.
class NanCheckBackend final : public BackendAdaptor {
 public:
  NanCheckBackend(Backend& inner, int rank) : BackendAdaptor{inner}, rank_{rank} {}
  void execute(const OpRecord& record) override;

 private:
  void check(const OpRecord& record, const Tensor& written, std::size_t position);

  int rank_;
};

/// What goes wrong, on which rank, at which of its ops (counted from 0 by the FaultBackend).
struct Fault {
  enum class Kind : std::uint8_t {
    exit,     ///< the process ends itself with exit_code, without clean-up
    kill,     ///< the process dies by SIGKILL
    hang,     ///< the op never returns
    nan,      ///< the first element it writes becomes NaN; waits for an op that writes floats
    error,    ///< throws Error
    corrupt,  ///< one byte in the middle of what it wrote is inverted; waits for an op that writes
    slow      ///< it and all ops after it are handed over delay_us late
  };
  Kind kind{Kind::error};
  int exit_code{0};
  int delay_us{0};
  int rank{0};
  std::uint64_t op{0};
};
/// Reads "hang:rank=1:op=40"; kinds are exit:CODE, kill, hang, nan, throw, corrupt and
/// slow:MICROSECONDS. Throws InputError.
[[nodiscard]] Fault parse_fault(std::string_view spec);

/// Throws InputError when the fault can never happen: its rank does not exist, or a rank is to end
/// its process where all ranks share one.
void check_fault(const Fault& fault, const Transport& transport);

/// Test tool: injects one fault. Harmless on other ranks.
class FaultBackend final : public BackendAdaptor {
 public:
  FaultBackend(Backend& inner, int rank, const Fault& fault)
      : BackendAdaptor{inner}, fault_{fault}, armed_{fault.rank == rank} {}
  void execute(const OpRecord& record) override;
  /// True on the fault's rank until it has happened; `slow` has with its first op.
  [[nodiscard]] bool is_armed() const { return armed_; }

 private:
  /// False if the op writes nothing that can hold a NaN.
  bool poison(const OpRecord& record);
  /// False if the op writes nothing.
  bool corrupt(const OpRecord& record);

  Fault fault_;
  bool armed_, slow_{false};
  std::uint64_t num_executed_{0};
};

}  // namespace shardmark
