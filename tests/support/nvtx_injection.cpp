// An NVTX tool for tests: NVTX loads it when NVTX_INJECTION64_PATH names it. Writes what it is told
// to the file named by SHARDMARK_NVTX_LOG, one line per call:
//   domain NAME | category NUMBER NAME | schema ENTRY:OFFSET... | end ID
//   start ID CATEGORY COLOUR FLOPS BYTES MESSAGE
// Only calls in domain "shardmark" with registered messages and payloads are known.

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <list>
#include <mutex>
#include <string>

namespace {

/// NVTX gives callbacks no context, so the tool's state has to be global.
class Log {
 public:
  static Log& instance() {
    static Log log;
    return log;
  }
  template <class... Parts>
  void line(const Parts&... parts) {
    const std::lock_guard lock{mutex_};
    (file_ << ... << parts) << std::endl;
  }
  const char* keep(const char* text) {
    const std::lock_guard lock{mutex_};
    return strings_.emplace_back(text).c_str();
  }
  nvtxRangeId_t next_id() {
    const std::lock_guard lock{mutex_};
    return ++last_id_;
  }

 private:
  Log() {
    if (const char* path = std::getenv("SHARDMARK_NVTX_LOG"); path != nullptr) file_.open(path);
  }
  std::mutex mutex_;
  std::ofstream file_;
  std::list<std::string> strings_;
  nvtxRangeId_t last_id_{0};
};

constexpr std::uint64_t schema_id = 77;

template <class Handle>
Handle to_handle(const char* text) {
  return reinterpret_cast<Handle>(const_cast<char*>(text));
}

nvtxDomainHandle_t create_domain(const char* name) {
  Log::instance().line("domain ", name);
  return to_handle<nvtxDomainHandle_t>(Log::instance().keep(name));
}

void name_category(nvtxDomainHandle_t, std::uint32_t category, const char* name) {
  Log::instance().line("category ", category, ' ', name);
}

nvtxStringHandle_t register_string(nvtxDomainHandle_t, const char* text) {
  return to_handle<nvtxStringHandle_t>(Log::instance().keep(text));
}

nvtxRangeId_t start_range(nvtxDomainHandle_t, const nvtxEventAttributes_t* event) {
  const nvtxRangeId_t id = Log::instance().next_id();
  const char* text = reinterpret_cast<const char*>(event->message.registered);
  double flops = -1;
  std::uint64_t bytes = 0;
  if (event->payloadType == NVTX_PAYLOAD_TYPE_EXT && event->reserved0 == 1) {
    const auto* data = reinterpret_cast<const nvtxPayloadData_t*>(event->payload.ullValue);
    if (data->schemaId == schema_id && data->size == sizeof flops + sizeof bytes) {
      std::memcpy(&flops, data->payload, sizeof flops);
      std::memcpy(&bytes, static_cast<const char*>(data->payload) + sizeof flops, sizeof bytes);
    }
  }
  Log::instance().line("start ", id, ' ', event->category, ' ', event->color, ' ', flops, ' ',
                       bytes, ' ', text);
  return id;
}

std::uint64_t register_schema(nvtxDomainHandle_t, const nvtxPayloadSchemaAttr_t* schema) {
  std::string text = "schema";
  for (std::size_t i = 0; i < schema->numEntries; ++i)
    text += std::string{" "} + schema->entries[i].name + ':' +
            std::to_string(schema->entries[i].offset);
  Log::instance().line(text);
  return schema_id;
}

void end_range(nvtxDomainHandle_t, nvtxRangeId_t id) { Log::instance().line("end ", id); }

template <class Function>
void install(NvtxFunctionTable table, unsigned size, NvtxCallbackIdCore2 id, Function function) {
  if (static_cast<unsigned>(id) < size)
    *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0)
    return 0;
  install(table, size, NVTX_CBID_CORE2_DomainCreateA, &create_domain);
  install(table, size, NVTX_CBID_CORE2_DomainNameCategoryA, &name_category);
  install(table, size, NVTX_CBID_CORE2_DomainRegisterStringA, &register_string);
  install(table, size, NVTX_CBID_CORE2_DomainRangeStartEx, &start_range);
  install(table, size, NVTX_CBID_CORE2_DomainRangeEnd, &end_range);
  return 1;
}

/// Extensions are offered one by one. NVTX's headers leave a pragma on that would hide the
/// function.
extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtxExtension(
    nvtxExtModuleInfo_t* module) {
  if (module->moduleId != NVTX_EXT_PAYLOAD_MODULEID) return 0;
  for (std::size_t i = 0; i < module->segmentsCount; ++i)
    if (module->segments[i].slotCount > NVTX3EXT_CBID_nvtxPayloadSchemaRegister)
      module->segments[i].functionSlots[NVTX3EXT_CBID_nvtxPayloadSchemaRegister] =
          reinterpret_cast<std::intptr_t>(&register_schema);
  return 1;
}
