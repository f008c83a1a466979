// Shared memory of blocks: variables, addresses; guard zones there and around buffers.
#include "fibers_on_cpu.h"

namespace cpu {

unsigned used_memory;
static unsigned launches, dynamic_bytes, next_variable;
static std::vector<Place*> variables;
static std::vector<std::pair<std::uintptr_t, std::uintptr_t>> unreadable;
static std::vector<std::pair<std::uintptr_t, std::uintptr_t>> withheld;  // until a thread waits
static bool readable[kMemory];  // of shared memory

void begin_memory(unsigned shared_bytes) {
  ++launches;
  variables.clear();
  dynamic_bytes = shared_bytes;
  next_variable = kDynamic + dynamic_bytes;
  used_memory = next_variable + kGuard;
  if (used_memory > kMemory) fail("too much shared memory");
  std::fill(readable, readable + kMemory, false);
  std::fill(readable + kDynamic, readable + next_variable, true);
}

static unsigned char guard_byte(std::size_t place) {
  return place % 2 ? 0xff : static_cast<unsigned char>(0xf0 | (place / 2 * 7 + 3) % 16);
}
static void fill(char* memory, unsigned from, unsigned to) {
  for (unsigned i = from; i < to; ++i) memory[i] = static_cast<char>(guard_byte(i));
}
static void check(const Block* block, unsigned from, unsigned to, const char* what) {
  for (unsigned i = from; i < to; ++i) {
    if (static_cast<unsigned char>(block->memory[i]) != guard_byte(i)) {
      fail("block %u, %u, %u wrote %s shared memory, at byte %d", block->index.x, block->index.y,
           block->index.z, what, static_cast<int>(i - kDynamic));
    }
  }
}
static void poison(char* memory, unsigned from, unsigned to) {
  std::memset(memory + from, 0xff, to - from);
}
void clear_memory(Block* block) {
  fill(block->memory, kDynamic - kGuard, used_memory);
  poison(block->memory, kDynamic, kDynamic + dynamic_bytes);
  for (const Place* v : variables) poison(block->memory, v->offset, v->offset + v->bytes);
  if (!proxies) return;
  block->seen.assign(block->memory, block->memory + kMemory);
  block->unfenced.assign(kMemory, 0);
}
void check_memory(const Block* block) {
  check(block, kDynamic - kGuard, kDynamic, "below");
  unsigned at = kDynamic + dynamic_bytes;
  for (const Place* v : variables) {
    check(block, at, v->offset, "beyond an array in");
    at = v->offset + v->bytes;
  }
  check(block, at, used_memory, "beyond an array in");
}

char* dynamic_shared() { return self->block->memory + kDynamic; }

char* shared_variable(Place& place) {
  if (place.launch != launches) {
    place.launch = launches;
    const unsigned alignment = std::max(16u, place.alignment);
    place.offset = (next_variable + kGuard + alignment - 1) / alignment * alignment;
    const unsigned before = used_memory;
    next_variable = place.offset + place.bytes;
    used_memory = next_variable + kGuard;
    if (used_memory > kMemory) fail("too much shared memory");
    variables.push_back(&place);
    std::fill(readable + place.offset, readable + next_variable, true);
    for (Block* block : alive_blocks) {
      fill(block->memory, before, used_memory);
      poison(block->memory, place.offset, next_variable);
      if (proxies) std::copy_n(block->memory + before, used_memory - before, &block->seen[before]);
    }
  }
  return self->block->memory + place.offset;
}

void wait_for_kernels() { self->waited = true; }
static void check_waited(const void* pointer, std::size_t bytes) {
  if (!self || self->waited) return;
  const auto first = reinterpret_cast<std::uintptr_t>(pointer), end = first + bytes;
  for (const auto& [from, to] : withheld) {
    if (first < to && end > from) fail("memory before the end of the kernels before is waited for");
  }
}
static void write_of(const void* pointer, std::size_t bytes) {
  check_waited(pointer, bytes);
  note_write(pointer, bytes);
}

void read_of(const void* pointer, std::size_t bytes) {
  if (!self) return;
  check_waited(pointer, bytes);
  const auto first = reinterpret_cast<std::uintptr_t>(pointer), end = first + bytes;
  const auto offset = first - reinterpret_cast<std::uintptr_t>(self->block->memory);
  if (offset < kMemory && (!readable[offset] || !readable[std::min(offset + bytes, std::size_t(kMemory)) - 1])) {
    fail("reads outside of shared memory, at byte %d", static_cast<int>(offset) - int(kDynamic));
  }
  for (const auto& [from, to] : unreadable) {
    if (first < to && end > from) fail("reads outside of a buffer");
  }
  check_read(pointer, bytes);
}

unsigned shared_address(const void* pointer) {
  const auto offset = static_cast<const char*>(pointer) - self->block->memory;
  if (offset < 0 || offset >= kMemory)
    fail("%p is no address of its block's shared memory", pointer);
  return static_cast<unsigned>(offset);
}

// The upper byte of an address counts the blocks of a cluster from 1 on; 0 is the own block.
char* shared_at(unsigned address) {
  const unsigned rank = address >> 24, offset = address & 0xffffff;
  Block* block = self->block;
  if (rank) {
    if (rank > block->cluster->blocks.size()) fail("no block %u in the cluster", rank - 1);
    block = block->cluster->blocks[rank - 1];
    if (!block->alive) fail("the shared memory of block %u of the cluster is gone", rank - 1);
  }
  if (offset >= used_memory) fail("no shared memory at %u", offset);
  return block->memory + offset;
}

}  // namespace cpu

extern "C" {
void forbid_reads(const std::uintptr_t* limits, unsigned count) {
  cpu::unreadable.clear();
  for (unsigned i = 0; i < count; ++i) cpu::unreadable.push_back({limits[2 * i], limits[2 * i + 1]});
}
void withhold(const std::uintptr_t* limits, unsigned count) {
  cpu::withheld.clear();
  for (unsigned i = 0; i < count; ++i) cpu::withheld.push_back({limits[2 * i], limits[2 * i + 1]});
}
// What the compiler puts before every load and store (ACCESSES of tests/cuda_on_cpu.py).
void __asan_load1_noabort(const void* from) { cpu::read_of(from, 1); }
void __asan_load2_noabort(const void* from) { cpu::read_of(from, 2); }
void __asan_load4_noabort(const void* from) { cpu::read_of(from, 4); }
void __asan_load8_noabort(const void* from) { cpu::read_of(from, 8); }
void __asan_load16_noabort(const void* from) { cpu::read_of(from, 16); }
void __asan_loadN_noabort(const void* from, std::size_t bytes) { cpu::read_of(from, bytes); }
void __asan_store1_noabort(const void* to) { cpu::write_of(to, 1); }
void __asan_store2_noabort(const void* to) { cpu::write_of(to, 2); }
void __asan_store4_noabort(const void* to) { cpu::write_of(to, 4); }
void __asan_store8_noabort(const void* to) { cpu::write_of(to, 8); }
void __asan_store16_noabort(const void* to) { cpu::write_of(to, 16); }
void __asan_storeN_noabort(const void* to, std::size_t bytes) { cpu::write_of(to, bytes); }
void __asan_handle_no_return() {}
}
