#include "core/adaptors.hpp"

#include "core/bf16.hpp"
#include "core/error.hpp"
#include "core/f16.hpp"
#include "core/record/describe.hpp"

#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <limits>
#include <thread>
#include <vector>

namespace shardmark {
namespace {

bool can_hold_nan(const Tensor& tensor) {
  return tensor.dtype != DType::i32 && tensor.dtype != DType::i8 && tensor.numel() > 0;
}

template <class T>
T value_at(const std::vector<std::byte>& bytes, std::int64_t index) {
  return reinterpret_cast<const T*>(bytes.data())[index];
}
bool is_nan(DType dtype, const std::vector<std::byte>& bytes, std::int64_t index) {
  switch (dtype) {
    case DType::f32:
      return std::isnan(value_at<float>(bytes, index));
    case DType::f64:
      return std::isnan(value_at<double>(bytes, index));
    case DType::bf16:
      return std::isnan(to_float(value_at<std::uint16_t>(bytes, index)));
    case DType::f16:
      return std::isnan(from_f16(value_at<std::uint16_t>(bytes, index)));
    case DType::i32:
    case DType::i8:
      return false;
  }
  return false;
}

std::int64_t first_nan(Backend& backend, const Tensor& row, std::vector<std::byte>& bytes) {
  bytes.resize(static_cast<std::size_t>(row.bytes()));
  backend.read(row, bytes.data());
  for (std::int64_t i = 0; i < row.numel(); ++i)
    if (is_nan(row.dtype, bytes, i)) return i;
  return -1;
}

/// One row of the tensor seen as a matrix.
Tensor row_of(const Tensor& tensor, std::int64_t row) {
  Tensor matrix = tensor;
  matrix.shape = Shape{tensor.rows(), tensor.cols()};
  return matrix.row_block(row, 1);
}

}  // namespace

void FilterBackend::execute(const OpRecord& record) {
  const OpKind kind = kind_of(record.op);
  if (!keep_ || kind == *keep_ || kind == OpKind::ordering) inner().execute(record);
}

void NanCheckBackend::execute(const OpRecord& record) {
  inner().execute(record);
  inner().synchronize();
  const Touches touched = touches(record.op);
  for (std::size_t i = 0; i < touched.writes.size(); ++i)
    if (can_hold_nan(touched.writes[i])) check(record, touched.writes[i], i);
}

void NanCheckBackend::check(const OpRecord& record, const Tensor& written, std::size_t position) {
  std::vector<std::byte> bytes;
  for (std::int64_t row = 0; row < written.rows(); ++row) {
    const Tensor view = row_of(written, row);
    const std::int64_t column = first_nan(inner(), view, bytes);
    if (column >= 0)
      throw Error{message("rank ", rank_, ": ", describe(record), " wrote NaN to output ", position,
                          " (", written.shape.to_string(), " ", name_of(written.dtype), ") at row ",
                          row, ", column ", column)};
  }
}

namespace {

[[noreturn]] void reject(std::string_view spec, std::string_view part, std::string_view rule) {
  throw InputError{message("fault '", spec, "': '", part, "' ", rule,
                           "; for example hang:rank=1:op=40 or exit:3:rank=0:op=7")};
}

/// The next part of `rest` up to a colon, which is removed.
std::string_view next_part(std::string_view& rest) {
  const std::size_t colon = rest.find(':');
  const std::string_view part = rest.substr(0, colon);
  rest = colon == std::string_view::npos ? std::string_view{} : rest.substr(colon + 1);
  return part;
}

template <class T>
T number(std::string_view spec, std::string_view text, std::string_view prefix, T largest) {
  T value{};
  if (text.starts_with(prefix)) {
    const char* end = text.data() + text.size();
    const auto [stop, problem] = std::from_chars(text.data() + prefix.size(), end, value);
    if (problem == std::errc{} && stop == end && value >= 0 && value <= largest) return value;
  }
  reject(spec, text, message("is not ", prefix, "NUMBER with 0 <= NUMBER <= ", largest));
}

}  // namespace

Fault parse_fault(std::string_view spec) {
  static constexpr std::array<std::string_view, 7> kinds{"exit",  "kill",    "hang", "nan",
                                                         "throw", "corrupt", "slow"};
  Fault fault;
  std::string_view rest = spec;
  const std::string_view name = next_part(rest);
  std::size_t kind = 0;
  while (kind < kinds.size() && kinds[kind] != name) ++kind;
  if (kind == kinds.size())
    reject(spec, name, "is not exit, kill, hang, nan, throw, corrupt or slow");
  fault.kind = static_cast<Fault::Kind>(kind);
  if (fault.kind == Fault::Kind::exit) fault.exit_code = number(spec, next_part(rest), "", 255);
  constexpr int longest_us = 1'000'000;
  if (fault.kind == Fault::Kind::slow)
    fault.delay_us = number(spec, next_part(rest), "", longest_us);
  fault.rank = number(spec, next_part(rest), "rank=", std::numeric_limits<int>::max());
  fault.op = number(spec, next_part(rest), "op=", std::numeric_limits<std::uint64_t>::max());
  if (!rest.empty()) reject(spec, rest, "is too much");
  return fault;
}

void check_fault(const Fault& fault, const Transport& transport) {
  if (fault.rank >= transport.size())
    throw InputError{message("--inject-fault: rank ", fault.rank, " of ", transport.size(),
                             " ranks; try rank=", transport.size() - 1)};
  if (fault.kind == Fault::Kind::exit && transport.name() == "threads")
    throw InputError{
        "--inject-fault exit ends a process, and here all ranks are threads of one; try throw, or "
        "start under mpirun"};
}

void FaultBackend::execute(const OpRecord& record) {
  const bool now = armed_ && num_executed_++ >= fault_.op;
  if (fault_.kind == Fault::Kind::slow) {
    if (now) {
      armed_ = false;
      slow_ = true;
    }
    if (slow_) std::this_thread::sleep_for(std::chrono::microseconds{fault_.delay_us});
    return inner().execute(record);
  }
  const bool is_submitted = fault_.kind == Fault::Kind::nan || fault_.kind == Fault::Kind::hang ||
                            fault_.kind == Fault::Kind::corrupt;
  if (!now || is_submitted) inner().execute(record);
  if (!now) return;
  switch (fault_.kind) {
    case Fault::Kind::exit:
      _exit(fault_.exit_code);
    case Fault::Kind::kill:
      std::raise(SIGKILL);
      break;
    case Fault::Kind::hang:
      while (true) std::this_thread::sleep_for(std::chrono::hours{1});
    case Fault::Kind::nan:
      armed_ = !poison(record);
      break;
    case Fault::Kind::error:
      throw Error{message("fault injected at ", describe(record), " of rank ", fault_.rank)};
    case Fault::Kind::corrupt:
      armed_ = !corrupt(record);
      break;
    case Fault::Kind::slow:
      break;
  }
}

bool FaultBackend::poison(const OpRecord& record) {
  for (const Tensor& written : touches(record.op).writes) {
    if (!can_hold_nan(written)) continue;
    // All bits set are a NaN of every format.
    const std::uint64_t nan = ~std::uint64_t{0};
    inner().synchronize();
    inner().write(row_of(written, 0).column_block(0, 1), &nan);
    return true;
  }
  return false;
}

bool FaultBackend::corrupt(const OpRecord& record) {
  for (const Tensor& written : touches(record.op).writes) {
    if (written.numel() == 0) continue;
    const Tensor element = row_of(written, written.rows() / 2).column_block(written.cols() / 2, 1);
    std::array<std::byte, 8> bytes{};
    inner().synchronize();
    inner().read(element, bytes.data());
    bytes[0] = ~bytes[0];
    inner().write(element, bytes.data());
    return true;
  }
  return false;
}

}  // namespace shardmark
