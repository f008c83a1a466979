// Shared memory of blocks: guard zones, variables, addresses.
#include "fibers_on_cpu.h"

namespace cpu {

unsigned used_memory;
static unsigned launches, dynamic_bytes, next_variable;
static std::vector<Place*> variables;

void begin_memory(unsigned shared_bytes) {
  ++launches;
  variables.clear();
  dynamic_bytes = shared_bytes;
  next_variable = kDynamic + dynamic_bytes;
  used_memory = next_variable + kGuard;
  if (used_memory > kMemory) fail("too much shared memory");
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
    for (Block* block : alive_blocks) {
      fill(block->memory, before, used_memory);
      poison(block->memory, place.offset, next_variable);
      if (proxies) std::copy_n(block->memory + before, used_memory - before, &block->seen[before]);
    }
  }
  return self->block->memory + place.offset;
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
