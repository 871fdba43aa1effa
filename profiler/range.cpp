#include "profiler/range.hpp"

#ifdef SHARDMARK_HAVE_NVTX

#include "core/error.hpp"

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>

namespace shardmark {
namespace {

constexpr std::uint32_t colour_compute = 0xFF4C78A8;        // ARGB
constexpr std::uint32_t colour_communication = 0xFFF58518;  // ARGB

/// What a range carries; a schema describes it to the tool.
struct OpPayload {
  double flops;
  std::uint64_t bytes_wire;
};

/// 0 if the tool knows no schemas.
std::uint64_t register_payload(nvtxDomainHandle_t domain) {
  nvtxPayloadSchemaEntry_t flops{}, bytes{};
  flops.type = NVTX_PAYLOAD_ENTRY_TYPE_DOUBLE;
  flops.name = "flops";
  flops.description = "floating-point operations that the op executes";
  flops.offset = offsetof(OpPayload, flops);
  bytes.type = NVTX_PAYLOAD_ENTRY_TYPE_UINT64;
  bytes.name = "bytes";
  bytes.description = "bytes across this rank's link, by a ring algorithm";
  bytes.offset = offsetof(OpPayload, bytes_wire);
  const std::array entries{flops, bytes};
  nvtxPayloadSchemaAttr_t schema{};
  schema.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE;
  schema.name = "shardmark op";
  schema.type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
  schema.entries = entries.data();
  schema.numEntries = entries.size();
  schema.payloadStaticSize = sizeof(OpPayload);
  return nvtxPayloadSchemaRegister(domain, &schema);
}

class NvtxRanges final : public KernelSink {
 public:
  /// `domain` is released at the end.
  explicit NvtxRanges(nvtxDomainHandle_t domain)
      : domain_{domain}, schema_{register_payload(domain)} {
    for (std::size_t lane = 0; lane < num_lanes; ++lane)
      nvtxDomainNameCategoryA(domain_, category_of(lane), name_of(static_cast<Lane>(lane)).data());
  }
  NvtxRanges(const NvtxRanges&) = delete;
  NvtxRanges& operator=(const NvtxRanges&) = delete;
  ~NvtxRanges() override {
    for (std::size_t lane = 0; lane < num_lanes; ++lane) end(lane);
    nvtxDomainDestroy(domain_);
  }

  [[nodiscard]] bool wants_times() const override { return false; }
  void on_begin(const OpRecord& record) override {
    const std::size_t lane = index_of(record.lane);
    end(lane);
    nvtxEventAttributes_t event{};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.category = category_of(lane);
    event.colorType = NVTX_COLOR_ARGB;
    const bool communicates = kind_of(record.op) == OpKind::communication;
    event.color = communicates ? colour_communication : colour_compute;
    const OpPayload payload{flops_of(record.op),
                            static_cast<std::uint64_t>(bytes_wire_of(record.op))};
    nvtxPayloadData_t data{};
    if (schema_ != 0) {
      NVTX_PAYLOAD_EVTATTR_SET_DATA(event, &data, schema_, &payload, sizeof payload);
    } else if (communicates) {
      event.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
      event.payload.ullValue = payload.bytes_wire;
    } else {
      event.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
      event.payload.dValue = payload.flops;
    }
    event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    event.message.registered = message_of(record);
    open_[lane] = nvtxDomainRangeStartEx(domain_, &event);
  }

  void on_end(const OpRecord& record) override { end(index_of(record.lane)); }

 private:
  using OpNames = std::array<nvtxStringHandle_t, std::variant_size_v<Op>>;

  /// 0 means "no category".
  static std::uint32_t category_of(std::size_t lane) {
    return static_cast<std::uint32_t>(lane) + 1;
  }

  /// A range that an exception left open ends when its lane goes on.
  void end(std::size_t lane) {
    if (open_[lane]) nvtxDomainRangeEnd(domain_, *open_[lane]);
    open_[lane].reset();
  }

  nvtxStringHandle_t message_of(const OpRecord& record) {
    nvtxStringHandle_t& handle = messages_[*record.path][record.op.index()];
    if (handle == nullptr) {
      const std::string text =
          message(*record.path, record.path->empty() ? "" : "/", name_of(record.op));
      handle = nvtxDomainRegisterStringA(domain_, text.c_str());
    }
    return handle;
  }

  nvtxDomainHandle_t domain_;
  std::uint64_t schema_;  ///< of OpPayload; 0: the tool knows none
  std::unordered_map<std::string, OpNames>
      messages_;  ///< by path; a later Rank may reuse addresses
  std::array<std::optional<nvtxRangeId_t>, num_lanes> open_{};
};

}  // namespace

std::unique_ptr<KernelSink> make_nvtx_ranges() {
  nvtxDomainHandle_t domain = nvtxDomainCreateA("shardmark");
  if (domain == nullptr) return nullptr;
  return std::make_unique<NvtxRanges>(domain);
}

NvtxWindow::NvtxWindow(const char* name) : domain_{nvtxDomainCreateA("shardmark")} {
  const auto domain = static_cast<nvtxDomainHandle_t>(domain_);
  if (domain == nullptr) return;
  nvtxEventAttributes_t event{};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;  // what a capture range is by default
  event.message.registered = nvtxDomainRegisterStringA(domain, name);
  range_ = nvtxDomainRangeStartEx(domain, &event);
}

NvtxWindow::~NvtxWindow() {
  if (domain_ == nullptr) return;
  nvtxDomainRangeEnd(static_cast<nvtxDomainHandle_t>(domain_), range_);
  nvtxDomainDestroy(static_cast<nvtxDomainHandle_t>(domain_));
}

}  // namespace shardmark

#else

namespace shardmark {
std::unique_ptr<KernelSink> make_nvtx_ranges() { return nullptr; }
NvtxWindow::NvtxWindow(const char*) : domain_{nullptr} {}
NvtxWindow::~NvtxWindow() = default;
}  // namespace shardmark

#endif
