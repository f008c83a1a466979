// Order between the proxies. Bulk copies and wgmma access shared memory through the asynchronous
// proxy: bytes that a thread wrote and did not fence are an error.
#include "fibers_on_cpu.h"

namespace cpu {

static void note_byte(Fiber* fiber, unsigned i) {
  Block& block = *fiber->block;
  if (block.seen[i] == block.memory[i]) return;
  block.seen[i] = block.memory[i];
  block.unfenced[i] = static_cast<unsigned short>(fiber->number + 1);
  if (fiber->unpublished.empty() || fiber->unpublished.back() != i / 8 * 8) {
    fiber->unpublished.push_back(i / 8 * 8);
  }
}
void note_writes(Fiber* fiber) {
  const Block& block = *fiber->block;
  // Long runs first, which compare fast: a thread that has run seldom wrote much.
  for (unsigned run = kDynamic; run < used_memory; run += 4096) {
    const unsigned end = std::min(run + 4096, used_memory);
    if (std::memcmp(&block.seen[run], block.memory + run, end - run) == 0) continue;
    for (unsigned at = run; at < end; at += 64) {
      if (std::memcmp(&block.seen[at], block.memory + at, 64) == 0) continue;
      for (unsigned i = at; i < at + 64; ++i) note_byte(fiber, i);
    }
  }
}

static void publish() {
  if (!proxies) return;
  note_writes(self);
  for (const unsigned at : self->unpublished) {
    for (unsigned i = at; i < at + 8; ++i) {
      if (self->block->unfenced[i] == self->number + 1) self->block->unfenced[i] = 0;
    }
  }
  self->unpublished.clear();
}
void fence_barrier_init() { publish(); }
void fence_proxy_shared() { publish(); }
void fence_proxy_global() { self->acquired = false; }
void fence_proxy() {
  publish();
  self->acquired = false;
}

char* proxy_at(Block* block, unsigned offset, unsigned bytes, const char* what) {
  if (offset < kDynamic || offset + bytes > used_memory) fail("%s outside of shared memory", what);
  for (unsigned i = offset; proxies && i < offset + bytes; ++i) {
    if (!block->unfenced[i]) continue;
    fail("%s touches byte %u of shared memory, which thread %u wrote without a proxy fence", what,
         i - kDynamic, block->unfenced[i] - 1u);
  }
  return block->memory + offset;
}
void proxy_write(Block* block, unsigned offset, const unsigned char* data, unsigned bytes,
                 const char* what) {
  std::memcpy(proxy_at(block, offset, bytes, what), data, bytes);
  if (proxies) std::memcpy(&block->seen[offset], data, bytes);
}
void proxy_poison(Block* block, unsigned offset, unsigned bytes, const char* what) {
  std::memset(proxy_at(block, offset, bytes, what), 0xff, bytes);
  if (proxies) std::memset(&block->seen[offset], 0xff, bytes);
}

}  // namespace cpu
