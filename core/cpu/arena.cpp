#include "core/cpu/arena.hpp"

#include "core/error.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace shardmark {
namespace {

constexpr std::int64_t alignment = 64;
constexpr std::int64_t huge_page = std::int64_t{2} << 20;

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
std::size_t as_size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

}  // namespace

Arena::Arena(std::int64_t capacity_bytes) {
  SHARDMARK_CHECK(capacity_bytes > 0, "an arena of ", capacity_bytes, " bytes");
  capacity_ = round_up(capacity_bytes, huge_page);
  // One huge page more than asked for leaves room to start on a huge page boundary.
  const std::size_t reserved = as_size(capacity_ + huge_page);
  void* const mapped = mmap(nullptr, reserved, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  SHARDMARK_CHECK(mapped != MAP_FAILED, "cannot reserve ", reserved, " bytes of address space");
  auto* const begin = static_cast<std::byte*>(mapped);
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(mapped));
  const std::int64_t lead = round_up(address, huge_page) - address;
  base_ = begin + lead;
  if (lead > 0) munmap(begin, as_size(lead));
  if (lead < huge_page) munmap(base_ + capacity_, as_size(huge_page - lead));
  madvise(base_, as_size(capacity_), MADV_HUGEPAGE);  // Only advice: small pages work as well.
  free_[0] = capacity_;
}

Arena::~Arena() { munmap(base_, as_size(capacity_)); }

void Arena::prefault(std::int64_t bytes) {
  const std::int64_t end = std::min(capacity_, round_up(bytes, huge_page));
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  for (; resident_ < end; resident_ += page)
    *static_cast<volatile std::byte*>(base_ + resident_) = std::byte{0};
}

std::byte* Arena::allocate(std::int64_t bytes) {
  SHARDMARK_CHECK(bytes >= 0, "an allocation of ", bytes, " bytes");
  const bool fits_at_all = bytes <= capacity_;
  const std::int64_t size = fits_at_all ? std::max(alignment, round_up(bytes, alignment)) : bytes;
  const auto hole =
      std::find_if(free_.begin(), free_.end(), [&](const auto& h) { return h.second >= size; });
  if (hole == free_.end())
    throw Error{message("out of memory: ", bytes, " bytes asked for, ", in_use_, " of ", capacity_,
                        " bytes in use")};
  const auto [offset, hole_size] = *hole;
  prefault(offset + size);
  free_.erase(hole);
  if (hole_size > size) free_[offset + size] = hole_size - size;
  allocated_[offset] = size;
  in_use_ += size;
  peak_ = std::max(peak_, in_use_);
  return base_ + offset;
}

void Arena::deallocate(std::byte* data) noexcept {
  const auto block = allocated_.find(data - base_);
  if (data == nullptr || block == allocated_.end()) return;
  auto [offset, size] = *block;
  allocated_.erase(block);
  in_use_ -= size;
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + size) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += size;
      return;
    }
  }
  free_.emplace_hint(next, offset, size);
}

}  // namespace shardmark
