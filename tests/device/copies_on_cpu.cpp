// Copies. They are done as late as PTX allows, when somebody waits for them or nothing else can run
// (or, with copies_at_once, when they begin), and what they will overwrite holds garbage until
// then.
#include "fibers_on_cpu.h"

namespace cpu {

// ---- cp.async: ordinary writes of the thread, done later.

static void perform(const Copy& copy) {
  std::memset(copy.to, 0, copy.bytes);
  std::memcpy(copy.to, copy.from, copy.valid);
}
void copy(u32 shared, const void* global, int bytes, int valid) {
  const Copy copy{shared_at(shared), static_cast<const char*>(global), bytes, valid};
  if (shared % bytes || reinterpret_cast<std::uintptr_t>(global) % bytes) {
    fail("an asynchronous copy that is not aligned");
  }
  read_of(copy.from, valid);
  if (copies_at_once)
    perform(copy);
  else
    std::memset(copy.to, 0xff, bytes);
  self->copies.open.push_back(copy);
}
void copy_commit() { self->copies.commit(); }
void copy_wait(int pending) {
  auto& groups = self->copies.closed;
  while (groups.size() > static_cast<std::size_t>(pending)) {
    if (!copies_at_once) {
      for (const Copy& each : groups.front()) perform(each);
    }
    self->warp->copied |= !groups.front().empty();
    groups.erase(groups.begin());
  }
}
// A wait shows a lane its own copies alone; a barrier shows them to the lanes that ldmatrix reads for.
void show_copies() { self->warp->copied = false; }
void check_copies() {
  if (self->warp->copied) fail("ldmatrix after an asynchronous copy, without a barrier since");
}

// ---- Loads into shared memory.

struct Load {
  Block* block;  // whose shared memory it writes
  std::function<void()> perform;
};
static std::vector<Load> loads;

bool perform_one() {
  if (loads.empty()) return false;
  const unsigned which = random_below(loads.size());
  const Load load = loads[which];
  loads.erase(loads.begin() + which);
  load.perform();
  return true;
}
void begin_load(Block* block, std::function<void()> perform) {
  if (copies_at_once) return perform();
  loads.push_back({block, std::move(perform)});
}
void begin_bulk(const char* what) {
  if (proxies) note_writes(self);
  if (self->acquired) fail("%s after a flag was read, without a proxy fence", what);
}

void prefetch_l2(const void* from) { read_of(from, 1); }

void bulk_load(u32 shared, const void* global, u32 bytes, u32 barrier, u64) {
  const char* what = "a bulk load";
  const auto source = reinterpret_cast<std::uintptr_t>(global);
  if (shared % 16 || source % 16 || bytes % 16) fail("%s that is not aligned", what);
  begin_bulk(what);
  read_of(global, bytes);
  Block* block = self->block;
  check_barrier(block, barrier, what);
  proxy_poison(block, shared, bytes, what);
  begin_load(block, [=] {
    proxy_write(block, shared, reinterpret_cast<const unsigned char*>(source), bytes, what);
    complete(block, barrier, bytes);
  });
}

// A word into the shared memory of a block of the cluster.
void store_remote(u32 address, u32 value, u32 barrier) {
  const char* what = "a store into another block";
  char* to = shared_at(address);
  if (address % 4 || barrier % 8) fail("%s that is not aligned", what);
  if (address >> 24 == 0 || address >> 24 != barrier >> 24) {
    fail("%s whose barrier is elsewhere", what);
  }
  Block* block = self->block->cluster->blocks[(address >> 24) - 1];
  proxy_at(block, barrier & 0xffffff, 8, what);
  std::memset(to, 0xff, 4);
  if (proxies) std::memset(&block->seen[address & 0xffffff], 0xff, 4);
  begin_load(block, [=] {
    std::memcpy(to, &value, 4);
    if (proxies) std::memcpy(&block->seen[address & 0xffffff], &value, 4);
    complete(block, barrier & 0xffffff, 4);
  });
}

// ---- Stores and reductions out of shared memory.

static void capture(BulkStore& store) {
  if (store.captured) return;
  if (proxies) note_writes(self);
  const char* from = proxy_at(self->block, store.offset, store.bytes, "a bulk store");
  store.data.assign(from, from + store.bytes);
  store.captured = true;
}
void begin_store(u32 shared, u32 bytes, std::function<void(const Bytes&)> write) {
  begin_bulk("a bulk store");
  proxy_at(self->block, shared, bytes, "a bulk store");
  BulkStore store{shared, bytes, std::move(write)};
  if (copies_at_once) {
    capture(store);
    store.write(store.data);
    store.write = [](const Bytes&) {};
  }
  self->stores.open.push_back(std::move(store));
}
void bulk_commit() { self->stores.commit(); }
static void check_bulk(const void* global, u32 shared, u32 bytes) {
  if (shared % 16 || reinterpret_cast<std::uintptr_t>(global) % 16 || bytes % 16) {
    fail("a bulk store that is not aligned");
  }
}
void bulk_store(void* global, u32 shared, u32 bytes) {
  check_bulk(global, shared, bytes);
  note_write(global, bytes);  // here already: nobody may wait for the end of the last stores
  begin_store(shared, bytes, [=](const Bytes& data) {
    std::memcpy(global, data.data(), bytes);
    note_write(global, bytes);
  });
}

void bulk_wait_read(int pending) {
  auto& groups = self->stores.closed;
  for (std::size_t g = 0; g + pending < groups.size(); ++g) {
    for (BulkStore& store : groups[g]) capture(store);
  }
}
void bulk_wait(int pending) {
  bulk_wait_read(pending);
  auto& groups = self->stores.closed;
  while (groups.size() > static_cast<std::size_t>(pending)) {
    for (BulkStore& store : groups.front()) store.write(store.data);
    groups.erase(groups.begin());
  }
}

template <class T, class Combine>
static void combine_all(void* global, const Bytes& data, Combine combine) {
  for (std::size_t at = 0; at < data.size(); at += sizeof(T)) {
    T target, value;
    std::memcpy(&target, static_cast<char*>(global) + at, sizeof(T));
    std::memcpy(&value, &data[at], sizeof(T));
    target = combine(target, value);
    std::memcpy(static_cast<char*>(global) + at, &target, sizeof(T));
  }
}
template <class T>
static void reduce(const std::string& how, void* global, const Bytes& data) {
  if (how == "add")
    combine_all<T>(global, data, [](T a, T b) { return static_cast<T>(a + b); });
  else if (how == "max")
    combine_all<T>(global, data, [](T a, T b) { return a > b ? a : b; });
  else
    combine_all<T>(global, data, [](T a, T b) { return a < b ? a : b; });
}
template <float (*kWiden)(u16), u16 (*kNarrow)(float)>
static void reduce_small(const std::string& how, void* global, const Bytes& data) {
  combine_all<u16>(global, data, [&](u16 x, u16 y) {
    const float a = kWiden(x), b = kWiden(y);
    return kNarrow(how == "add" ? a + b : how == "max" ? std::fmax(a, b) : std::fmin(a, b));
  });
}
void reduce_as(const std::string& how, const std::string& type, void* global, const Bytes& data) {
  if (type == "f32") return reduce<float>(how, global, data);
  if (type == "f64") return reduce<double>(how, global, data);
  if (type == "s32") return reduce<int>(how, global, data);
  if (type == "u32") return reduce<u32>(how, global, data);
  if (type == "s64") return reduce<long long>(how, global, data);
  if (type == "u64") return reduce<u64>(how, global, data);
  if (type == "f16") return reduce_small<f16_to_float, float_to_f16>(how, global, data);
  if (type == "bf16") return reduce_small<bf16_to_float, float_to_bf16>(how, global, data);
  fail("no reduction of %s", type.c_str());
}
void bulk_reduce(const char* operation, void* global, u32 shared, u32 bytes) {
  check_bulk(global, shared, bytes);
  const std::string name = operation, how = name.substr(0, name.find('.'));
  const std::string type = name.substr(name.rfind('.') + 1);
  begin_store(shared, bytes, [=](const Bytes& data) {
    reduce_as(how, type, global, data);
    note_access(global, bytes, Access::kReduction);
  });
}

// ---- What threads know of themselves, and their ends.

unsigned ballot(bool predicate) {
  const LaneWords* all = show({{predicate}});
  unsigned result = 0;
  for (unsigned i = 0; i < self->warp->lanes.size(); ++i) {
    result |= static_cast<unsigned>(all[i].words[0]) << i;
  }
  return result;
}
void elect(u32& elected) {
  ballot(true);
  elected = self == self->warp->lanes.front();
}
void cluster_rank(u32& rank) { rank = self->block->rank; }
void note_flag(const u32* flag) {
  self->flag = flag;
  self->flag_value = *flag;
  ++self->flags_read;
  self->acquired = true;
}

static std::vector<BulkStore> unfinished;  // stores that nobody waited for

void end_thread(Fiber* fiber) {
  for (const auto& group : fiber->products.closed) {
    if (!group.empty()) fail("a thread ended before its products");
  }
  fiber->stores.commit();
  for (auto& group : fiber->stores.closed) {
    for (BulkStore& store : group) {
      if (!store.captured) fail("a thread ended before its bulk stores had read shared memory");
      unfinished.push_back(std::move(store));
    }
  }
}
void end_block(Block* block) {
  for (const Load& load : loads) {
    if (load.block == block) fail("a block ended before loads into its shared memory");
  }
}
void end_launch() {
  for (const BulkStore& store : unfinished) store.write(store.data);
  unfinished.clear();
}
void forget_all() {
  loads.clear();
  unfinished.clear();
}

}  // namespace cpu
