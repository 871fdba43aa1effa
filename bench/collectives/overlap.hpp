#pragma once

#include "bench/collectives/workspace.hpp"

namespace shardmark::bench::collectives {

/// The matrix product of --with-matmul and the call, alone and together, in turns; fills
/// row.overlap. Communication moves between the tiles of the product, or by the backend's progress
/// thread, as options.progress_thread says. Collective.
void measure_overlap(Row& row, const Runnable& runnable, const Options& options,
                     Workspace& workspace, Transport& transport);

}  // namespace shardmark::bench::collectives
