// What kernels on the host share: fibers, barriers, copies, the blocks one after another.
#include "cuda_on_cpu.h"

#include <ucontext.h>

#include <vector>

Triple threadIdx, blockIdx, blockDim, gridDim;

// Newton's method on erf and erfc, from the guess 0 and from the tail's leading term.
double erfcinv(double v) {
  if (v > 0.5 && v < 1.5) return erfinv(1.0 - v);
  if (v > 1.0) return -erfcinv(2.0 - v);
  if (!(v > 0.0)) return v == 0.0 ? HUGE_VAL : std::numeric_limits<double>::quiet_NaN();
  double x = std::sqrt(-std::log(v));
  for (int k = 0; k < 60; ++k) {
    const double step = (std::erfc(x) - v) * 0.886226925452758013649 * std::exp(x * x);
    x += step > 0.5 ? 0.5 : step < -0.5 ? -0.5 : step;
    if (std::fabs(step) < 1e-17 * std::fabs(x)) break;
  }
  return x;
}
double erfinv(double v) {
  if (std::fabs(v) > 0.5) return v < 0.0 ? -erfcinv(1.0 + v) : erfcinv(1.0 - v);
  double x = 0.0;
  for (int k = 0; k < 30; ++k) x -= (std::erf(x) - v) * 0.886226925452758013649 * std::exp(x * x);
  return v == 0.0 ? v : x;
}

namespace cpu {

[[noreturn]] void missing(const char* instruction) {
  std::fprintf(stderr, "no stand-in for %s\n", instruction);
  std::abort();
}

struct Copy {
  void* to;
  const void* from;
  int bytes, valid;  // zeros follow what is valid
};
struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  Triple thread;
  bool done = true;
  std::vector<std::vector<Copy>> groups;
  std::vector<Copy> open;
};
struct Barrier {
  unsigned arrived = 0, generation = 0;
};

static std::vector<Fiber> fibers;
static ucontext_t scheduler;
unsigned current;
static unsigned alive;
static bool copies_at_once;
char* shared;
static Barrier block_barrier;
static std::vector<Barrier> warp_barriers;
static std::vector<unsigned> warp_words;
static std::function<void()> body;

unsigned threads() { return blockDim.x * blockDim.y * blockDim.z; }

static void wait(Barrier& barrier, unsigned count) {
  const unsigned generation = barrier.generation;
  if (++barrier.arrived == count) {
    barrier.arrived = 0;
    ++barrier.generation;
    return;
  }
  while (barrier.generation == generation) {
    const unsigned own = current;
    swapcontext(&fibers[own].context, &scheduler);
  }
}

unsigned exchange(unsigned word, unsigned source) {
  const unsigned warp = current / 32, lane = current % 32;
  const unsigned count = std::min(32u, threads() - warp * 32);
  warp_words[warp * 32 + lane] = word;
  wait(warp_barriers[warp], count);
  const unsigned result = warp_words[warp * 32 + source];
  wait(warp_barriers[warp], count);
  return result;
}

void wait_for_block() { wait(block_barrier, threads()); }
void wait_for_warp() { wait(warp_barriers[current / 32], 32); }

unsigned ballot(bool predicate) {
  const unsigned warp = current / 32;
  const unsigned count = std::min(32u, threads() - warp * 32);
  warp_words[current] = predicate;
  wait(warp_barriers[warp], count);
  unsigned result = 0;
  for (unsigned i = 0; i < count; ++i) result |= warp_words[warp * 32 + i] << i;
  wait(warp_barriers[warp], count);
  return result;
}

void give_up() {
  const unsigned own = current;
  swapcontext(&fibers[own].context, &scheduler);
}

static void perform(const Copy& copy) {
  std::memset(copy.to, 0, copy.bytes);
  std::memcpy(copy.to, copy.from, copy.valid);
}

void copy(void* to, const void* from, int bytes, int valid) {
  if (reinterpret_cast<std::uintptr_t>(to) % bytes ||
      reinterpret_cast<std::uintptr_t>(from) % bytes) {
    std::fprintf(stderr, "misaligned asynchronous copy\n");
    std::abort();
  }
  if (copies_at_once) perform({to, from, bytes, valid});
  fibers[current].open.push_back({to, from, bytes, valid});
}
void commit() {
  fibers[current].groups.push_back(fibers[current].open);
  fibers[current].open.clear();
}
void wait_copies(unsigned pending) {
  auto& groups = fibers[current].groups;
  while (groups.size() > pending) {
    if (!copies_at_once) {
      for (const Copy& each : groups.front()) perform(each);
    }
    groups.erase(groups.begin());
  }
}

static void enter() {
  body();
  fibers[current].done = true;
  --alive;
  setcontext(&scheduler);
}

static void run_block(bool backwards) {
  const unsigned count = threads();
  alive = count;
  for (unsigned i = 0; i < count; ++i) {
    Fiber& fiber = fibers[i];
    fiber.thread = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
    fiber.done = false;
    fiber.groups.clear();
    fiber.open.clear();
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, enter, 0);
  }
  while (alive) {
    for (unsigned k = 0; k < count; ++k) {
      current = backwards ? count - 1 - k : k;
      if (fibers[current].done) continue;
      threadIdx = fibers[current].thread;
      swapcontext(&scheduler, &fibers[current].context);
    }
  }
}

static std::vector<Triple> chosen;  // the blocks that run; all where empty

void run(const unsigned* grid, const unsigned* block, unsigned shared_bytes, bool backwards,
         bool at_once, std::function<void()> kernel) {
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {block[0], block[1], block[2]};
  copies_at_once = at_once;
  body = kernel;
  fibers.resize(std::max<std::size_t>(fibers.size(), threads()));
  for (Fiber& fiber : fibers) fiber.stack.resize(64 << 10);
  warp_barriers.assign((threads() + 31) / 32, {});
  warp_words.assign(warp_barriers.size() * 32, 0);
  const std::size_t bytes = (shared_bytes + 15) / 16 * 16 + 16;
  shared = static_cast<char*>(std::aligned_alloc(16, bytes));
  const auto run_at = [&](Triple block) {
    blockIdx = block;
    std::memset(shared, 0xff, bytes);
    run_block(backwards);
  };
  for (const Triple& block : chosen) run_at(block);
  for (unsigned z = 0; z < grid[2] && chosen.empty(); ++z) {
    for (unsigned y = 0; y < grid[1]; ++y) {
      for (unsigned x = 0; x < grid[0]; ++x) run_at({x, y, z});
    }
  }
  std::free(shared);
  fibers = {};  // the library stays loaded, their stacks need not
}

}  // namespace cpu

extern "C" void choose_blocks(const Triple* blocks, unsigned count) {
  cpu::chosen.assign(blocks, blocks + count);
}
