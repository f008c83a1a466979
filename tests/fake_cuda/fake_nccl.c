// A stand-in for NCCL, over the stand-in for libcuda: ranks are threads, or take turns in one. What is
// begun runs when streams do, in the order in which each rank began it, and ends when all have it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_cuda.h"
#include "nccl.h"

enum { kRanks = 8, kGroups = 256, kSplits = 8 };

__extension__ typedef _Float16 Half;

typedef enum Kind { kGather, kBroadcast, kReduce, kScatter, kBlocks } Kind;

// What a rank sends to another one, until that has it.
typedef struct Message {
  size_t bytes;
  struct Message* next;
  char content[];
} Message;

typedef struct Block {
  bool sends;
  int peer;
  const void* source;
  void* target;
  size_t bytes;
  bool done;
} Block;

// An exchange as one rank has begun it; number: among those of its communicator.
typedef struct Exchange {
  Kind kind;
  ncclComm_t comm;
  int number;
  const void* source;
  void* target;
  size_t count;
  ncclDataType_t type;
  int operation;  // or the root
  bool arrived;
  int block_count;
  Block blocks[2 * kRanks];
} Exchange;

// Ranks that were connected: by an id, or as a part of others that split.
typedef struct Group {
  char key[192];
  int count, here, splits;
  Exchange* arrived[kRanks];  // at the collective that all come to
  int left;                   // of them have it behind them
  bool moved;
  Message* boxes[kRanks][kRanks];  // by sender and receiver
  int split_here, color[kSplits][kRanks], rank_key[kSplits][kRanks];
} Group;

struct ncclComm {
  Group* group;
  int rank, begun, over, splits;
  bool live;
};

static Group groups[kGroups];
static int group_count, comms_live;
static long exchanges;
static _Thread_local int depth;
static _Thread_local Exchange* grouped;
static _Thread_local CUstream grouped_stream;
static char failing[64];

int fake_nccl_comms(void) { return comms_live; }
long fake_nccl_exchanges(void) { return exchanges; }
// Let a function fail from now on, "" for none.
void fake_nccl_fail(const char* function) { snprintf(failing, sizeof failing, "%s", function); }

static ncclResult_t broken(const char* function, const char* rule) {
  fake_cuda_complain(function, rule);
  return ncclInvalidArgument;
}
#define NEED(condition, rule)                           \
  if (!strcmp(failing, __func__)) return failed();      \
  if (!(condition)) return broken(__func__, rule)

// A group in which a call failed begins nothing.
static ncclResult_t failed(void) {
  free(grouped);
  grouped = NULL;
  return ncclUnhandledCudaError;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclUnhandledCudaError ? "unhandled cuda error" : "an error of the stand-in";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int number;
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "id %d", ++number);
  return ncclSuccess;
}

// Return the group with a key, a new one where there is none.
static Group* group_of(const char* key, int count) {
  for (int i = 0; i < group_count; ++i) {
    if (!strcmp(groups[i].key, key)) return &groups[i];
  }
  Group* group = &groups[group_count++];
  snprintf(group->key, sizeof group->key, "%s", key);
  group->count = count;
  return group;
}

static ncclResult_t member_of(Group* group, int rank, ncclComm_t* comm) {
  *comm = calloc(1, sizeof **comm);
  (*comm)->group = group;
  (*comm)->rank = rank;
  (*comm)->live = true;
  ++comms_live;
  ++group->here;
  fake_cuda_notify();
  while (group->here < group->count) {
    if (!fake_cuda_wait()) return broken(__func__, "not all ranks come");
  }
  return ncclSuccess;
}

// Threads meet here, so that streams have to run late from now on.
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int count, ncclUniqueId id, int rank) {
  NEED(count >= 1 && count <= kRanks && rank >= 0 && rank < count, "a rank of some");
  fake_cuda_lock();
  if (!fake_cuda_defers()) fake_cuda_defer(1);
  const ncclResult_t result = member_of(group_of(id.internal, count), rank, comm);
  fake_cuda_unlock();
  return result;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* split,
                           ncclConfig_t* config) {
  NEED(comm != NULL && comm->live && color >= 0 && config == NULL, "a communicator, and a color");
  Group* group = comm->group;
  fake_cuda_lock();
  const int number = comm->splits++ % kSplits;
  group->color[number][comm->rank] = color;
  group->rank_key[number][comm->rank] = key;
  if (++group->split_here == group->count) {
    group->split_here = 0;
    ++group->splits;
    fake_cuda_notify();
  }
  ncclResult_t result = ncclSuccess;
  while (group->splits < comm->splits && result == ncclSuccess) {
    if (!fake_cuda_wait()) result = broken(__func__, "not all ranks come");
  }
  int count = 0, rank = 0;
  for (int i = 0; i < group->count; ++i) {
    if (group->color[number][i] != color) continue;
    ++count;
    rank += group->rank_key[number][i] < key;
  }
  char name[192];
  snprintf(name, sizeof name, "%.128s/%d:%d", group->key, number, color);
  if (result == ncclSuccess) result = member_of(group_of(name, count), rank, split);
  fake_cuda_unlock();
  return result;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  NEED(comm != NULL && comm->live && comm->begun == comm->over, "its exchanges are over");
  comm->live = false;
  --comms_live;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  NEED(comm->live, "a communicator");
  *count = comm->group->count;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  NEED(comm->live, "a communicator");
  *rank = comm->rank;
  return ncclSuccess;
}

static size_t size_of(ncclDataType_t type) {
  static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return sizes[type];
}

static float from_bfloat16(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

// Rounds to nearest, ties to even.
static uint16_t to_bfloat16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

#define COMBINE(a, b)                                                                      \
  (operation == ncclSum ? (a) + (b)                                                        \
                        : operation == ncclProd ? (a) * (b)                                \
                                                : operation == ncclMax ? ((a) > (b) ? (a) : (b)) \
                                                                       : ((a) < (b) ? (a) : (b)))
#define CASE(name, kind)                                                            \
  case name:                                                                        \
    for (size_t i = 0; i < count; ++i) {                                            \
      const kind a = ((kind*)into)[i], b = ((const kind*)other)[i];                 \
      ((kind*)into)[i] = (kind)COMBINE(a, b);                                       \
    }                                                                               \
    break;

// Add one rank's elements to others', rounded after each.
static void combine(void* into, const void* other, size_t count, ncclDataType_t type,
                    int operation) {
  switch (type) {
    CASE(ncclInt8, int8_t)
    CASE(ncclUint8, uint8_t)
    CASE(ncclInt32, int32_t)
    CASE(ncclUint32, uint32_t)
    CASE(ncclInt64, int64_t)
    CASE(ncclUint64, uint64_t)
    CASE(ncclFloat16, Half)
    CASE(ncclFloat32, float)
    CASE(ncclFloat64, double)
    case ncclBfloat16:
      for (size_t i = 0; i < count; ++i) {
        const float a = from_bfloat16(((uint16_t*)into)[i]);
        const float b = from_bfloat16(((const uint16_t*)other)[i]);
        ((uint16_t*)into)[i] = to_bfloat16(COMBINE(a, b));
      }
      break;
  }
}

static const char* source_of(const Exchange* exchange, size_t offset) {
  return (const char*)exchange->source + offset;
}

// Give all ranks what a collective brings them.
static void move(Group* group) {
  const Exchange* first = group->arrived[0];
  const int ranks = group->count;
  const size_t bytes = first->count * size_of(first->type);
  char* results[kRanks];
  for (int rank = 0; rank < ranks; ++rank) {
    const bool gathers = first->kind == kGather;
    results[rank] = calloc(1, bytes * (size_t)(gathers ? ranks : 1) + 1);
    for (int i = 0; i < ranks; ++i) {
      const Exchange* other = group->arrived[i];
      const size_t part = first->kind == kScatter ? (size_t)rank * bytes : 0;
      if (gathers) {
        memcpy(results[rank] + (size_t)i * bytes, other->source, bytes);
      } else if (first->kind == kBroadcast) {
        if (i == first->operation) memcpy(results[rank], other->source, bytes);
      } else if (i == 0) {
        memcpy(results[rank], source_of(other, part), bytes);
      } else {
        combine(results[rank], source_of(other, part), first->count, first->type,
                first->operation);
      }
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const size_t all = first->kind == kGather ? bytes * (size_t)ranks : bytes;
    memcpy(group->arrived[rank]->target, results[rank], all);
    free(results[rank]);
  }
}

static bool end(Exchange* exchange) {
  ++exchange->comm->over;
  ++exchanges;
  return true;
}

static bool collect(Exchange* exchange) {
  Group* group = exchange->comm->group;
  if (!exchange->arrived) {
    if (group->arrived[exchange->comm->rank] != NULL) return false;
    group->arrived[exchange->comm->rank] = exchange;
    exchange->arrived = true;
    group->moved = false;
    fake_cuda_notify();
  }
  for (int i = 0; i < group->count && !group->moved; ++i) {
    const Exchange* other = group->arrived[i];
    if (other == NULL) return false;
    if (other->kind != exchange->kind || other->count != exchange->count ||
        other->type != exchange->type || other->operation != exchange->operation) {
      fake_cuda_complain(__func__, "ranks are in different exchanges");
      return false;
    }
  }
  if (!group->moved) move(group);
  group->moved = true;
  if (++group->left == group->count) {
    memset(group->arrived, 0, sizeof group->arrived);
    group->left = 0;
  }
  return end(exchange);
}

static void post(Exchange* exchange, Block* block) {
  Message** box = &exchange->comm->group->boxes[exchange->comm->rank][block->peer];
  while (*box != NULL) box = &(*box)->next;
  *box = calloc(1, sizeof **box + block->bytes);
  (*box)->bytes = block->bytes;
  memcpy((*box)->content, block->source, block->bytes);
  fake_cuda_notify();
}

static bool swap(Exchange* exchange) {
  const int rank = exchange->comm->rank;
  bool done = true;
  for (int i = 0; i < exchange->block_count; ++i) {
    Block* block = &exchange->blocks[i];
    if (block->sends && !exchange->arrived) post(exchange, block);
  }
  exchange->arrived = true;
  for (int i = 0; i < exchange->block_count; ++i) {
    Block* block = &exchange->blocks[i];
    if (block->sends) {
      done = done && exchange->comm->group->boxes[rank][block->peer] == NULL;
      continue;
    }
    if (block->done) continue;
    Message** box = &exchange->comm->group->boxes[block->peer][rank];
    Message* message = *box;
    if (message == NULL) {
      done = false;
      continue;
    }
    if (message->bytes != block->bytes) fake_cuda_complain(__func__, "bytes of a block");
    memcpy(block->target, message->content, block->bytes);
    *box = message->next;
    free(message);
    block->done = true;
    fake_cuda_notify();
  }
  return done && end(exchange);
}

static bool attempt(void* given) {
  Exchange* exchange = given;
  if (exchange->comm->over != exchange->number) return false;  // another one goes first
  return exchange->kind == kBlocks ? swap(exchange) : collect(exchange);
}

static ncclResult_t begin(Exchange* exchange, CUstream stream) {
  exchange->number = exchange->comm->begun++;
  const CUresult result = fake_cuda_enqueue(stream, attempt, exchange);
  return result == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

static Exchange* exchange_of(Kind kind, ncclComm_t comm) {
  Exchange* exchange = calloc(1, sizeof *exchange);
  exchange->kind = kind;
  exchange->comm = comm;
  return exchange;
}

ncclResult_t ncclGroupStart(void) {
  NEED(depth == 0, "a group in another one");
  depth = 1;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
  const bool was = depth == 1;
  Exchange* exchange = grouped;
  depth = 0;
  grouped = NULL;
  NEED(was, "no group was begun");
  return exchange == NULL ? ncclSuccess : begin(exchange, grouped_stream);
}

static ncclResult_t add(Block block, ncclComm_t comm, CUstream stream) {
  if (grouped == NULL) grouped = exchange_of(kBlocks, comm);
  if (grouped->comm != comm) return broken(__func__, "one communicator in a group");
  grouped->blocks[grouped->block_count++] = block;
  grouped_stream = stream;
  if (depth) return ncclSuccess;
  Exchange* exchange = grouped;
  grouped = NULL;
  return begin(exchange, stream);
}

ncclResult_t ncclSend(const void* source, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, CUstream stream) {
  const size_t bytes = count * size_of(type);
  NEED(comm->live && peer >= 0 && peer < comm->group->count, "a rank that there is");
  NEED(fake_cuda_is_memory(source, bytes), "outside of memory");
  return add((Block){true, peer, source, NULL, bytes, false}, comm, stream);
}

ncclResult_t ncclRecv(void* target, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      CUstream stream) {
  const size_t bytes = count * size_of(type);
  NEED(comm->live && peer >= 0 && peer < comm->group->count, "a rank that there is");
  NEED(fake_cuda_is_memory(target, bytes), "outside of memory");
  return add((Block){false, peer, NULL, target, bytes, false}, comm, stream);
}

static ncclResult_t collective(Kind kind, const void* source, size_t sent, void* target,
                               size_t received, size_t count, ncclDataType_t type, int operation,
                               ncclComm_t comm, CUstream stream) {
  NEED(comm->live && depth == 0, "a communicator, and no group");
  const size_t ranks = (size_t)comm->group->count, bytes = count * size_of(type);
  NEED(fake_cuda_is_memory(source, bytes * (sent ? ranks : 1)), "outside of memory");
  NEED(fake_cuda_is_memory(target, bytes * (received ? ranks : 1)), "outside of memory");
  Exchange* exchange = exchange_of(kind, comm);
  exchange->source = source;
  exchange->target = target;
  exchange->count = count;
  exchange->type = type;
  exchange->operation = operation;
  return begin(exchange, stream);
}

ncclResult_t ncclAllGather(const void* source, void* target, size_t count, ncclDataType_t type,
                           ncclComm_t comm, CUstream stream) {
  NEED(comm != NULL, "a communicator");
  return collective(kGather, source, 0, target, 1, count, type, 0, comm, stream);
}

ncclResult_t ncclBroadcast(const void* source, void* target, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, CUstream stream) {
  NEED(comm != NULL && root >= 0 && root < comm->group->count, "a root that there is");
  return collective(kBroadcast, source, 0, target, 0, count, type, root, comm, stream);
}

ncclResult_t ncclAllReduce(const void* source, void* target, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, CUstream stream) {
  NEED(comm != NULL, "a communicator");
  return collective(kReduce, source, 0, target, 0, count, type, (int)operation, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* source, void* target, size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, CUstream stream) {
  NEED(comm != NULL, "a communicator");
  return collective(kScatter, source, 1, target, 0, count, type, (int)operation, comm, stream);
}
