// Fibers, barriers and the order in which they run. A warp mostly runs until all its threads wait;
// which warp is next, of all blocks that are alive, is drawn: a priority for each, drawn anew now
// and then, so that some warps run far ahead and others stay behind. Blocks begin in random order.
#include "fibers_on_cpu.h"

#include <cstdarg>
#include <map>

Triple threadIdx, blockIdx, blockDim, gridDim;

namespace cpu {

constexpr unsigned kMostThreads = 2048, kMostBlocks = 8;  // alive together, but for clusters

Fiber* self;
unsigned current;
std::vector<Block*> alive_blocks;
bool copies_at_once, proxies;
unsigned long long progress;

static bool backwards;
static unsigned long long random_state;
static const std::function<void()>* body;
static std::string failure;
static std::vector<Triple> chosen;  // the blocks that run; all where empty

// splitmix64.
static unsigned long long draw() {
  unsigned long long z = random_state += 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}
unsigned random_below(unsigned count) { return static_cast<unsigned>(draw() % count); }

// ---- Waiting.

static void* scheduler;

// To the scheduler; returns when the fiber runs again.
static void leave() {
  Fiber* own = self;
  if (proxies) note_writes(own);
  cpu_switch(&own->context, scheduler);
}

static void resume(Fiber* fiber) {
  self = fiber;
  current = fiber->number;
  threadIdx = fiber->thread;
  blockIdx = fiber->block->index;
  cpu_switch(&scheduler, fiber->context);
  self = nullptr;
}

void fail(const char* format, ...) {
  char text[400];
  va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  if (failure.empty()) failure = text;
  if (self) {
    const Triple b = self->block->index;
    std::snprintf(text, sizeof text, " (thread %u of block %u, %u, %u)", self->number, b.x, b.y,
                  b.z);
    failure += text;
    cpu_switch(&self->context, scheduler);
  }
  throw 0;  // in the scheduler: caught by run
}

void block_until_woken(const char* what) {
  self->state = State::kBlocked;
  self->waits = what;
  --self->warp->ready;
  ++progress;
  leave();
}

void wake(Fiber* fiber) {
  fiber->state = State::kReady;
  ++fiber->warp->ready;
}

void wait(Barrier& barrier, unsigned count, const char* name) {
  ++barrier.arrived;
  if (barrier.arrived < count) {
    barrier.waiting.push_back(self);
    self->state = State::kBlocked;
    self->waits = name;
    --self->warp->ready;
    ++progress;
    leave();
    return;
  }
  barrier.arrived = 0;
  for (Fiber* fiber : barrier.waiting) wake(fiber);
  if (&barrier != &self->warp->barrier) note_barrier(self->block);
  barrier.waiting.clear();
}

// What a thread has told others must not rest on what its warp does next: that may come late.
void released() {
  ++progress;
  if (random_below(2)) return;
  self->warp->priority = 0;
  self->warp->held = true;
  leave();
}

static unsigned threads() { return blockDim.x * blockDim.y * blockDim.z; }

void wait_for_block() { wait(self->block->barriers[0], threads(), "its block's barrier"); }
void wait_for_threads(unsigned id, unsigned count) {
  if (id > 15 || count % 32 != 0 || count > threads())
    fail("no barrier %u of %u threads", id, count);
  wait(self->block->barriers[id], count, "a named barrier of its block");
  show_copies();
}
// Counts among those who come to a barrier, and goes on.
void arrive_for_threads(unsigned id, unsigned count) {
  if (id > 15 || count % 32 != 0 || count > threads())
    fail("no barrier %u of %u threads", id, count);
  Barrier& barrier = self->block->barriers[id];
  if (++barrier.arrived == count) {
    barrier.arrived = 0;
    for (Fiber* fiber : barrier.waiting) wake(fiber);
    barrier.waiting.clear();
    note_barrier(self->block);
  }
  released();
}
void wait_for_cluster() {
  Cluster& cluster = *self->block->cluster;
  note_release(&cluster);
  wait(cluster.barrier, threads() * cluster.blocks.size(), "its cluster's barrier");
  note_acquire(&cluster);
}

// A lane is at most one exchange ahead of the others, so two sets of words suffice.
const LaneWords* show(const LaneWords& own) {
  Warp& warp = *self->warp;
  LaneWords* all = warp.shown[warp.turn & 1];
  all[current % 32] = own;
  if (warp.barrier.arrived + 1 == warp.lanes.size()) ++warp.turn;
  wait(warp.barrier, warp.lanes.size(), "its warp");
  return all;
}

// A thread that reads the same flag again and finds the same has done nothing since.
void give_up() {
  const bool idle =
      self->flags_read == 1 && self->flag == self->spun_on && self->flag_value == self->spun_value;
  if (!idle) ++progress;
  self->spun_on = self->flag;
  self->spun_value = self->flag_value;
  self->flags_read = 0;
  self->spun_at = progress;
  self->state = State::kSpinning;
  self->waits = "a flag";
  --self->warp->ready;
  leave();
}

// ---- Blocks.

template <class T>
struct Pool {
  std::vector<T*> free;
  T* take() {
    if (free.empty()) return new T;
    T* last = free.back();
    free.pop_back();
    return last;
  }
};
static Pool<Fiber> fiber_pool;
static Pool<Block> block_pool;

static void enter();

static Fiber* new_fiber(Block* block, unsigned number) {
  Fiber* fiber = fiber_pool.take();
  char* stack = fiber->stack ? fiber->stack : mapped(kStack);
  *fiber = {};
  fiber->stack = stack;
  fiber->number = number;
  fiber->thread = {number % blockDim.x, number / blockDim.x % blockDim.y,
                   number / blockDim.x / blockDim.y};
  fiber->block = block;
  fiber->state = State::kReady;
  prepare(*fiber, enter);
  return fiber;
}

static Block* new_block(Triple index, Cluster* cluster) {
  Block* block = block_pool.take();
  if (!block->memory) {
    char* raw = mapped(kMemory + 1024);
    block->memory = raw + -reinterpret_cast<std::uintptr_t>(raw) % 1024;
  }
  block->index = index;
  begin_writes(block);
  block->cluster = cluster;
  block->alive = threads();
  for (Barrier& barrier : block->barriers) barrier = {};
  clear_memory(block);
  block->warps.assign((threads() + 31) / 32, {});
  block->fibers.clear();
  for (unsigned i = 0; i < threads(); ++i) {
    Fiber* fiber = new_fiber(block, i);
    fiber->warp = &block->warps[i / 32];
    fiber->warp->lanes.push_back(fiber);
    block->fibers.push_back(fiber);
  }
  for (Warp& warp : block->warps) {
    warp.ready = warp.lanes.size();
    warp.priority = draw();
    if (backwards) std::reverse(warp.lanes.begin(), warp.lanes.end());
  }
  return block;
}

static void start_cluster(const std::vector<Triple>& indices) {
  auto* cluster = new Cluster;
  for (const Triple& index : indices) {
    Block* block = new_block(index, cluster);
    block->rank = cluster->blocks.size();
    cluster->blocks.push_back(block);
    alive_blocks.push_back(block);
  }
  cluster->alive = cluster->blocks.size();
}

static void retire(Block* block) {
  for (Fiber* fiber : block->fibers) fiber_pool.free.push_back(fiber);
  block_pool.free.push_back(block);
}

static void end_cluster(Cluster* cluster) {
  for (Block* block : cluster->blocks) {
    alive_blocks.erase(std::find(alive_blocks.begin(), alive_blocks.end(), block));
    retire(block);
  }
  delete cluster;
}

static void enter() {
  (*body)();
  Fiber* own = self;
  if (proxies) note_writes(own);
  end_thread(own);
  own->state = State::kDone;
  --own->warp->ready;
  --own->block->alive;
  ++progress;
  cpu_switch(&own->context, scheduler);
}

// ---- The order.

static void run_warp(Warp& warp) {
  while (warp.ready) {
    for (Fiber* lane : warp.lanes) {
      if (lane->state != State::kReady) continue;
      resume(lane);
      if (!failure.empty()) throw 0;
      if (warp.held) {
        warp.held = false;
        return;
      }
      if (random_below(32) == 0) {  // its other lanes may stay behind
        warp.priority = draw();
        return;
      }
    }
  }
  if (random_below(8) == 0) warp.priority = draw();
}

// Lets threads look at their flags again, where anything happened since; returns whether any may.
static bool wake_spinning() {
  bool any = false;
  for (Block* block : alive_blocks) {
    for (Fiber* fiber : block->fibers) {
      if (fiber->state != State::kSpinning || fiber->spun_at == progress) continue;
      wake(fiber);
      any = true;
    }
  }
  return any;
}

static Warp* next_warp() {
  Warp* best = nullptr;
  for (Block* block : alive_blocks) {
    for (Warp& warp : block->warps) {
      if (warp.ready && (!best || warp.priority > best->priority)) best = &warp;
    }
  }
  return best;
}

// Who waits on what, threads of a block that wait for the same together.
static std::string hang() {
  std::string text = "the kernel hangs:";
  unsigned lines = 0;
  for (Block* block : alive_blocks) {
    std::map<std::string, std::vector<unsigned>> groups;
    for (Fiber* fiber : block->fibers) {
      if (fiber->state != State::kDone) groups[described(fiber)].push_back(fiber->number);
    }
    for (const auto& [what, numbers] : groups) {
      if (++lines > 12) return text + "\n  and others";
      char line[300];
      std::snprintf(line, sizeof line,
                    "\n  block %u, %u, %u: %zu of %zu threads, from %u on, wait for %s",
                    block->index.x, block->index.y, block->index.z, numbers.size(),
                    block->fibers.size(), numbers[0], what.c_str());
      text += line;
    }
  }
  return text;
}

static bool end_finished(std::vector<Cluster*>& finished) {
  finished.clear();
  for (Block* block : alive_blocks) {
    if (block->alive || block->rank == ~0u) continue;
    end_block(block);
    check_memory(block);
    if (--block->cluster->alive == 0) finished.push_back(block->cluster);
    block->rank = ~0u;  // done with
  }
  for (Cluster* cluster : finished) end_cluster(cluster);
  return !finished.empty();
}

static void run_all(std::vector<std::vector<Triple>>& order) {
  const unsigned size = order.empty() ? 1 : order[0].size() * threads();
  const unsigned room = std::max(2u, std::min(kMostThreads / size, kMostBlocks));
  const unsigned most = random_below(4) ? room : 1;  // or each when the one before has ended
  std::vector<Cluster*> finished;
  std::size_t next = 0, running = 0;
  while (true) {
    for (; running < most && next < order.size(); ++running) start_cluster(order[next++]);
    if (alive_blocks.empty()) return;
    if (random_below(8) == 0) wake_spinning();
    Warp* warp = next_warp();
    if (warp) {
      const Block* block = warp->lanes[0]->block;
      run_warp(*warp);
      if (!block->alive) {
        end_finished(finished);
        running -= finished.size();
      }
    } else if (!wake_spinning()) {
      if (!perform_one()) fail("%s", hang().c_str());
      ++progress;
    }
  }
}

static std::vector<std::vector<Triple>> draw_order(const unsigned* cluster) {
  std::vector<std::vector<Triple>> order;
  for (const Triple& block : chosen) order.push_back({block});
  if (gridDim.x % cluster[0] || cluster[1] * cluster[2] != 1) fail("clusters that do not fit");
  for (unsigned z = 0; z < gridDim.z && chosen.empty(); ++z) {
    for (unsigned y = 0; y < gridDim.y; ++y) {
      for (unsigned x = 0; x < gridDim.x; x += cluster[0]) {
        order.emplace_back();
        for (unsigned c = 0; c < cluster[0]; ++c) order.back().push_back({x + c, y, z});
      }
    }
  }
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_below(i)]);
  return order;
}

const char* run(const unsigned* shape, unsigned shared_bytes, unsigned seed, int options,
                const std::function<void()>& kernel) {
  gridDim = {shape[0], shape[1], shape[2]};
  blockDim = {shape[3], shape[4], shape[5]};
  backwards = options & kBackwards;
  copies_at_once = options & kAtOnce;
  proxies = options & kProxies;
  random_state = seed;
  body = &kernel;
  failure.clear();
  begin_memory(shared_bytes);
  begin_writes();
  const Faults faults;
  try {
    auto order = draw_order(shape + 6);
    run_all(order);
    end_launch();
  } catch (int) {
    for (Block* block : alive_blocks) retire(block);
    alive_blocks.clear();
    forget_all();
  }
  chosen.clear();
  return failure.empty() ? nullptr : failure.c_str();
}

}  // namespace cpu

extern "C" void choose_blocks(const Triple* blocks, unsigned count) {
  cpu::chosen.assign(blocks, blocks + count);
}
