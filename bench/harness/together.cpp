#include "bench/harness/together.hpp"

#include "core/error.hpp"

#include <string>

namespace shardmark::bench {

void on_rank_0(Transport& transport, const std::function<void()>& action) {
  constexpr char fine = '0', failed = '1', bad_input = '2';
  std::string report(1, fine);
  if (transport.rank() == 0) {
    try {
      action();
    } catch (const InputError& error) {
      report = bad_input + std::string{error.what()};
    } catch (const std::exception& error) {
      report = failed + std::string{error.what()};
    }
  }
  report = transport.broadcast(report, Transport::Waiting::idle);
  if (report.front() == bad_input) throw InputError{report.substr(1)};
  if (report.front() == failed) throw Error{report.substr(1)};
}

}  // namespace shardmark::bench
