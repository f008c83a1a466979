// Who wrote each byte, and who may read or overwrite it: what another warp wrote is ordered by a
// barrier of the block, what another block wrote by a release that was acquired, and what another
// lane wrote to global memory by an exchange of the warp. In shared memory the lanes of a warp count
// as in step.
#include <unordered_map>

#include "fibers_on_cpu.h"

namespace cpu {

// exchange: the exchanges of the warp so far.
struct Write {
  unsigned block, phase, thread, exchange;
  Access access;
  bool any = false;
  unsigned warp() const { return thread / 32; }
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

static bool is_there(const Write& write);
static bool is_ordered(const Write& write) {
  if (write.block != self->block->number || write.phase < self->block->phase ||
      write.warp() != own_warp()) {
    return is_there(write);
  }
  return write.thread == self->number || write.exchange < self->warp->turn;
}

void note_access(const void* pointer, std::size_t bytes, Access access) {
  if (!is_checked(pointer)) return;
  const Write write{self->block->number, self->block->phase, self->number, self->warp->turn, access,
                    true};
  const bool is_plain = access == Access::kStore && !is_shared(pointer);
  const auto first = reinterpret_cast<std::uintptr_t>(pointer), end = first + bytes;
  for (auto at = first; at < end;) {
    Page& page = pages[at / kPage];
    if (page.empty()) page.resize(kPage);
    const auto last = std::min(end, (at / kPage + 1) * kPage);
    for (; at < last; ++at) {
      Write& before = page[at % kPage];
      if (is_plain && before.any && before.access == Access::kStore && !is_ordered(before)) {
        fail("overwrites what thread %u of block %u wrote, without a barrier or a release since",
             before.thread, before.block);
      }
      before = write;
    }
  }
}
void note_write(const void* pointer, std::size_t bytes) {
  note_access(pointer, bytes, Access::kStore);
}
void note_atomic(const void* pointer, std::size_t bytes) {
  note_access(pointer, bytes, Access::kAtomic);
}

static bool has(const std::vector<Known>& known, const Write& write) {
  if (write.block >= known.size()) return false;
  const Known& of = known[write.block];
  return write.phase < of.phase || (write.phase == of.phase && of.warps >> write.warp() & 1);
}
static bool is_there(const Write& write) {
  const Block& block = *self->block;
  if (write.block == block.number && (write.phase < block.phase || write.warp() == own_warp()))
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
    if (!write.any || write.access == Access::kAtomic) continue;
    if (is_shared(pointer)) {
      // Another block had this memory before.
      if (write.block != self->block->number || is_there(write)) continue;
    } else if (is_ordered(write)) {
      continue;
    }
    fail("reads what thread %u of block %u wrote, without a barrier or a release since",
         write.thread, write.block);
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
