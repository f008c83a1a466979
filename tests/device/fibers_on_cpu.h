// What the scheduler of fibers and the asynchronous instructions share.
#pragma once

#include <signal.h>

#include <string>
#include <vector>

#include "cuda_on_cpu.h"

namespace cpu {

struct Block;
struct Warp;
using Bytes = std::vector<unsigned char>;

// A copy by cp.async; zeros follow what is valid.
struct Copy {
  char* to;
  const char* from;
  int bytes, valid;
};
// A bulk copy or reduction out of shared memory: first it reads, later it writes.
struct BulkStore {
  unsigned offset, bytes;
  std::function<void(const Bytes&)> write;
  bool captured = false;
  Bytes data;
};
// registers: where the first operand is, if not in shared memory; given, left: what it was when the
// product began, the thread's own and as rows. bytes: the names of both types where these are 8-bit
// floats, of which tensor cores take 32 at a time; is_tf32: whether they are floats, 8 at a time.
struct Product {
  float* sums;
  int columns;
  unsigned long long a, b;
  bool bf16, transpose_a, transpose_b, adds;
  const unsigned* registers = nullptr;
  unsigned given[4] = {};
  float left[2][16] = {};
  const char* bytes = nullptr;
  bool is_tf32 = false;
};
// The asynchronous work of one kind that a thread began: groups in order, and the open one.
template <class Work>
struct Groups {
  std::vector<std::vector<Work>> closed;
  std::vector<Work> open;
  void commit() {
    closed.push_back(std::move(open));
    open.clear();
  }
};

enum class State { kReady, kBlocked, kSpinning, kDone };

struct Fiber {
  void* context = nullptr;
  char* stack = nullptr;
  Triple thread;
  unsigned number;
  Block* block;
  Warp* warp;
  State state = State::kDone;
  const char* waits = nullptr;  // for what
  // Spinning: the last flag that was read, how often since the thread gave up, and when it did.
  const void* flag = nullptr;
  const void* spun_on = nullptr;
  unsigned flag_value = 0, spun_value = 0, flags_read = 0;
  unsigned long long spun_at = 0;
  const void* barrier = nullptr;  // the mbarrier that it waits for
  unsigned parity = 0;
  bool waited = false;    // for the kernels before this one
  bool acquired = false;  // a flag, without a proxy fence since
  bool fenced = false;    // wgmma.fence
  Groups<Copy> copies;
  Groups<BulkStore> stores;
  Groups<Product> products;
  std::vector<unsigned> unpublished;  // offsets in shared memory, eight bytes each
};
struct Barrier {
  unsigned arrived = 0;
  std::vector<Fiber*> waiting;
};
// What is known of a block: its writes before a phase, and in that phase those of some warps.
struct Known {
  unsigned phase, warps;  // a bit for each
};
struct Warp {
  std::vector<Fiber*> lanes;
  unsigned ready = 0, turn = 0;
  bool held = false;    // others run first
  bool copied = false;  // copies of a lane have landed, and no barrier has shown them to the others
  unsigned long long priority = 0;
  Barrier barrier;
  LaneWords shown[2][32];
  std::vector<Known> known;  // of each block, and by all warps of the own after a barrier
};
struct Cluster {
  std::vector<Block*> blocks;
  unsigned alive = 0;
  Barrier barrier;
};
struct Block {
  Triple index;
  unsigned number, phase;  // in the grid; its barriers so far
  std::vector<Known> known;  // of each block
  unsigned rank, alive = 0;
  Cluster* cluster = nullptr;
  char* memory = nullptr;                // shared memory with its guard zones
  std::vector<char> seen;                // shared memory when a thread last gave up the processor
  std::vector<unsigned short> unfenced;  // per byte: the thread that wrote it, plus one
  std::vector<Fiber*> fibers;
  std::vector<Warp> warps;
  Barrier barriers[16];
};

// Shared memory of a block: the dynamic part from kDynamic on, then variables.
constexpr unsigned kDynamic = 1024, kGuard = 64, kMemory = 384 << 10;

// Stacks (contexts_on_cpu.cpp). cpu_switch keeps where the running one is in `from`.
constexpr std::size_t kStack = 64 << 10;
void prepare(Fiber& fiber, void (*enter)());
extern "C" void cpu_switch(void** from, void* to);

char* mapped(std::size_t bytes);  // fresh memory

// While kernels run, what would end the process ends the launch.
class Faults {
 public:
  Faults();
  ~Faults();

 private:
  stack_t stack_before_;
  struct sigaction before_[4];
};

extern Fiber* self;  // the thread that runs
extern std::vector<Block*> alive_blocks;
extern bool copies_at_once, proxies;
extern unsigned used_memory;  // up to here blocks have shared memory
extern unsigned long long progress;

unsigned random_below(unsigned count);
void wait(Barrier& barrier, unsigned count, const char* name);
void block_until_woken(const char* what);
void wake(Fiber* fiber);

// Shared memory (memory_on_cpu.cpp).
void begin_memory(unsigned shared_bytes);
void clear_memory(Block*);
void check_memory(const Block*);
void read_of(const void*, std::size_t bytes);  // fails in a guard zone

// Writes that others read (releases_on_cpu.cpp).
void begin_writes();
void begin_writes(Block*);
void note_barrier(Block*);
// kReduction: of a bulk copy, which adds atomically and whose sums others read as they read stores.
enum class Access : unsigned char { kStore, kReduction, kAtomic };
void note_access(const void*, std::size_t bytes, Access);
void note_write(const void*, std::size_t bytes);
void check_read(const void*, std::size_t bytes);

// Where the asynchronous proxy reads or writes shared memory (proxies_on_cpu.cpp). Writes of this
// thread since it began to run have been noted.
char* proxy_at(Block*, unsigned offset, unsigned bytes, const char* what);
void proxy_write(Block*, unsigned offset, const unsigned char* data, unsigned bytes,
                 const char* what);
// What a copy will overwrite may hold anything until the copy is done.
void proxy_poison(Block*, unsigned offset, unsigned bytes, const char* what);
void note_writes(Fiber*);  // which bytes of shared memory a thread wrote since it began to run

// Copies that an mbarrier counts (barriers_on_cpu.cpp).
void check_barrier(Block*, unsigned barrier, const char* what);
void complete(Block*, unsigned barrier, unsigned bytes);
std::string described(const Fiber*);  // what a thread waits for

// Asynchronous work (copies_on_cpu.cpp).
void begin_bulk(const char* what);
void begin_load(Block*, std::function<void()> perform);
void begin_store(unsigned shared, unsigned bytes, std::function<void(const Bytes&)> write);
void reduce_as(const std::string& how, const std::string& type, void* global, const Bytes& data);
bool perform_one();  // some load that is under way; false where there is none
void end_thread(Fiber*);
void end_block(Block*);
void end_launch();
void forget_all();

}  // namespace cpu
