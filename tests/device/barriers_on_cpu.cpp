// mbarriers.
#include "fibers_on_cpu.h"

namespace cpu {

struct Phase {
  u32 missing, expected;  // arrivals
  int bytes;              // announced and not yet there
  u32 parity;
};
constexpr u64 kValid = 0x5bull << 56;

static Phase read_barrier(const char* at) {
  u64 word;
  std::memcpy(&word, at, 8);
  if (word >> 56 != kValid >> 56) fail("an mbarrier that is not initialised");
  return {static_cast<u32>(word & 0xfff), static_cast<u32>(word >> 12 & 0xfff),
          static_cast<int>(word >> 24 & 0x7fffffff) - (1 << 30), static_cast<u32>(word >> 55 & 1)};
}
static void write_word(Block* block, char* at, u64 word) {
  std::memcpy(at, &word, 8);
  if (proxies) std::memcpy(&block->seen[at - block->memory], &word, 8);
}
static Block* owner(const char* at) {
  for (Block* block : alive_blocks) {
    if (at >= block->memory && at < block->memory + kMemory) return block;
  }
  fail("an mbarrier that is not in shared memory");
}
static void update(char* at, Phase phase) {
  Block* block = owner(at);
  if (phase.missing == 0 && phase.bytes == 0) {
    phase.parity ^= 1;
    phase.missing = phase.expected;
    note_barrier(block);
    for (Fiber* fiber : block->fibers) {
      if (fiber->barrier != at || fiber->parity == phase.parity) continue;
      fiber->barrier = nullptr;
      wake(fiber);
    }
  }
  write_word(block, at,
             kValid | static_cast<u64>(phase.parity) << 55 |
                 static_cast<u64>(phase.bytes + (1 << 30)) << 24 |
                 static_cast<u64>(phase.expected) << 12 | phase.missing);
}
static char* barrier_at(u32 address) {
  if (address % 8) fail("an mbarrier that is not aligned");
  return shared_at(address);
}
static void arrive(char* at, u32 bytes) {
  Phase phase = read_barrier(at);
  if (phase.missing == 0) fail("an arrival too many at an mbarrier");
  --phase.missing;
  phase.bytes += static_cast<int>(bytes);
  update(at, phase);
}
void barrier_init(u32 barrier, u32 arrivals) {
  if (arrivals == 0 || arrivals > 0xfff) fail("an mbarrier of %u arrivals", arrivals);
  const u64 word = kValid | 1ull << 54 | arrivals << 12 | arrivals;
  std::memcpy(barrier_at(barrier), &word, 8);
}
void barrier_invalidate(u32 barrier) { std::memset(barrier_at(barrier), 0xff, 8); }
void barrier_arrive(u32 barrier) {
  arrive(barrier_at(barrier), 0);
  released();
}
void barrier_arrive_expect(u32 barrier, u32 bytes) { arrive(barrier_at(barrier), bytes); }
void barrier_expect(u32 barrier, u32 bytes) {
  char* at = barrier_at(barrier);
  Phase phase = read_barrier(at);
  phase.bytes += static_cast<int>(bytes);
  update(at, phase);
}
void barrier_arrive_at(u32 barrier, u32 rank) {
  u32 address;
  cluster_address(address, barrier, rank);
  arrive(barrier_at(address), 0);
}
void barrier_try_wait(u32& complete, u32 barrier, u32 parity) {
  const char* at = barrier_at(barrier);
  const Phase phase = read_barrier(at);
  complete = 1;
  if (phase.parity != parity) return;
  self->barrier = at;
  self->parity = parity;
  block_until_woken("an mbarrier");
}

void complete(Block* block, unsigned barrier, unsigned bytes) {
  char* at = block->memory + barrier;
  Phase phase = read_barrier(at);
  phase.bytes -= static_cast<int>(bytes);
  update(at, phase);
}
// The barrier must be shown to the asynchronous proxy.
void check_barrier(Block* block, unsigned barrier, const char* what) {
  read_barrier(proxy_at(block, barrier, 8, what));
}

std::string described(const Fiber* fiber) {
  if (fiber->state == State::kSpinning) {
    return "a flag that holds " + std::to_string(fiber->flag_value);
  }
  if (!fiber->barrier) return fiber->waits;
  const auto* at = static_cast<const char*>(fiber->barrier);
  const Phase phase = read_barrier(at);
  char text[200];
  std::snprintf(text, sizeof text,
                "parity %u of the mbarrier at byte %d (%u of %u arrivals and %d bytes are missing)",
                fiber->parity,
                static_cast<int>(at - owner(at)->memory) - static_cast<int>(kDynamic),
                phase.missing, phase.expected, phase.bytes);
  return text;
}

}  // namespace cpu
