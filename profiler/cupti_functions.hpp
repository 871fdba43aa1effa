#pragma once

// Needs CUPTI's headers. The functions that the collector uses, so that tests can stand in for
// them.

#include "profiler/cupti.hpp"

#include <cupti.h>

#include <string>

namespace shardmark {

struct CuptiFunctions {
  decltype(&cuptiGetResultString) result_string{nullptr};
  decltype(&cuptiGetTimestamp) timestamp{nullptr};
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks{nullptr};
  decltype(&cuptiActivityEnable) enable{nullptr};
  decltype(&cuptiActivityDisable) disable{nullptr};
  decltype(&cuptiActivityFlushAll) flush_all{nullptr};
  decltype(&cuptiActivityGetNextRecord) next_record{nullptr};
  decltype(&cuptiActivityGetNumDroppedRecords) num_dropped{nullptr};
  decltype(&cuptiActivityPushExternalCorrelationId) push{nullptr};
  decltype(&cuptiActivityPopExternalCorrelationId) pop{nullptr};
};
struct CuptiLibrary {
  CuptiFunctions functions;
  std::string missing;  ///< why there is none
};
/// Loads the library, once.
[[nodiscard]] const CuptiLibrary& load_cupti();
/// With any functions.
[[nodiscard]] CuptiStart start_cupti(const CuptiFunctions& functions);

}  // namespace shardmark
