#include "profiler/range.hpp"

#ifdef SHARDMARK_HAVE_NVTX

#include "core/error.hpp"

#include <nvtx3/nvToolsExt.h>

#include <array>
#include <optional>
#include <string>
#include <unordered_map>

namespace shardmark {
namespace {

constexpr std::uint32_t colour_compute = 0xFF4C78A8;        // ARGB
constexpr std::uint32_t colour_communication = 0xFFF58518;  // ARGB

class NvtxRanges final : public KernelSink {
 public:
  /// `domain` is released at the end.
  explicit NvtxRanges(nvtxDomainHandle_t domain) : domain_{domain} {
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
    if (kind_of(record.op) == OpKind::communication) {
      event.color = colour_communication;
      event.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
      event.payload.ullValue = static_cast<std::uint64_t>(bytes_wire_of(record.op));
    } else {
      event.color = colour_compute;
      event.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
      event.payload.dValue = flops_of(record.op);
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

}  // namespace shardmark

#else

namespace shardmark {
std::unique_ptr<KernelSink> make_nvtx_ranges() { return nullptr; }
}  // namespace shardmark

#endif
