#pragma once

#include "core/transport.hpp"

namespace shardmark {

/// The transport of this process, for tests that run under mpirun (tests/mpi/main.cpp).
[[nodiscard]] Transport& mpi_transport();

}  // namespace shardmark
