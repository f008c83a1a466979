// Who wrote each byte, and who may read it: what another warp wrote is there after a barrier of the
// block, what another block wrote after a release that was acquired. Warps count as in step.
#include <unordered_map>

#include "fibers_on_cpu.h"

namespace cpu {

struct Write {
  unsigned block, phase, warp;
  bool any;
};
constexpr std::uintptr_t kPage = 4096;
using Page = std::vector<Write>;

static std::unordered_map<std::uintptr_t, Page> pages;
static std::unordered_map<const void*, std::vector<Known>> released_at;

void begin_writes() {
  pages.clear();
  released_at.clear();
}
void begin_writes(Block* block) {
  const Triple index = block->index;
  block->number = index.x + gridDim.x * (index.y + gridDim.y * index.z);
  block->phase = 0;
  block->known.clear();
}

static bool is_shared(const void* pointer) {
  return static_cast<std::size_t>(static_cast<const char*>(pointer) - self->block->memory) <
         kMemory;
}
// Shared memory is not, where mbarriers order what happens to it.
static bool is_checked(const void* pointer) {
  return self &&
         static_cast<std::size_t>(static_cast<const char*>(pointer) - self->stack) >= kStack &&
         !(proxies && is_shared(pointer));
}
static unsigned own_warp() { return self->number / 32; }

static void note(const void* pointer, std::size_t bytes, bool any) {
  if (!is_checked(pointer)) return;
  const Write write{self->block->number, self->block->phase, own_warp(), any};
  const auto first = reinterpret_cast<std::uintptr_t>(pointer), end = first + bytes;
  for (auto at = first; at < end;) {
    Page& page = pages[at / kPage];
    if (page.empty()) page.resize(kPage);
    const auto last = std::min(end, (at / kPage + 1) * kPage);
    for (; at < last; ++at) page[at % kPage] = write;
  }
}
void note_write(const void* pointer, std::size_t bytes) { note(pointer, bytes, true); }
void note_atomic(const void* pointer, std::size_t bytes) { note(pointer, bytes, false); }

static bool has(const std::vector<Known>& known, const Write& write) {
  if (write.block >= known.size()) return false;
  const Known& of = known[write.block];
  return write.phase < of.phase || (write.phase == of.phase && of.warps >> write.warp & 1);
}
static bool is_there(const Write& write) {
  const Block& block = *self->block;
  if (write.block == block.number && (write.phase < block.phase || write.warp == own_warp()))
    return true;
  return has(block.known, write) || has(self->warp->known, write);
}
void check_read(const void* pointer, std::size_t bytes) {
  if (!is_checked(pointer) || pages.empty()) return;
  const auto first = reinterpret_cast<std::uintptr_t>(pointer);
  auto page = pages.end();
  for (auto at = first; at < first + bytes; ++at) {
    if (at == first || at % kPage == 0) page = pages.find(at / kPage);
    if (page == pages.end()) continue;
    const Write& write = page->second[at % kPage];
    if (!write.any || is_there(write)) continue;
    // Another block's, that had this memory before.
    if (write.block != self->block->number && is_shared(pointer)) continue;
    fail("reads what warp %u of block %u wrote, without a barrier or a release since", write.warp,
         write.block);
  }
}

static void join(std::vector<Known>& to, const std::vector<Known>& from) {
  if (to.size() < from.size()) to.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (to[i].phase < from[i].phase) to[i] = from[i];
    if (to[i].phase == from[i].phase) to[i].warps |= from[i].warps;
  }
}
void note_barrier(Block* block) {
  ++block->phase;
  for (Warp& warp : block->warps) {
    join(block->known, warp.known);
    warp.known.clear();
  }
}
void note_acquire(const void* flag) { join(self->warp->known, released_at[flag]); }
void note_release(const void* flag) {
  std::vector<Known>& all = released_at[flag];
  const unsigned own = self->block->number;
  join(all, self->block->known);
  join(all, self->warp->known);
  if (all.size() <= own) all.resize(own + 1);
  if (all[own].phase < self->block->phase) all[own] = {self->block->phase, 0};
  all[own].warps |= 1u << own_warp();
}

}  // namespace cpu
