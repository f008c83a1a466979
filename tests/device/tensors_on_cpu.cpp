// Copies of tiles of tensors, by maps as tests/cuda_on_cpu.py encodes them.
#include "fibers_on_cpu.h"

namespace cpu {

struct Map {
  u64 address, rank, item, swizzle, type;  // swizzle: the bits of a line's number that count
  u64 extents[4], strides[3], box[4];
};
static_assert(sizeof(Map) == 128, "a tensor map");

// Calls visit(offset in shared memory, address or null where outside) for every element of a tile.
template <class Visit>
static void walk(const Map& map, u32 shared, const int (&at)[4], Visit visit) {
  if (shared % (map.swizzle ? 1024 : 128)) fail("a tensor tile that is not aligned");
  if (map.swizzle && map.box[0] * map.item > 16 * (map.swizzle + 1)) {
    fail("a tile wider than its swizzle");
  }
  u32 place = shared;
  const u64 elements = map.box[0] * map.box[1] * map.box[2] * map.box[3];
  for (u64 e = 0; e < elements; ++e, place += map.item) {
    bool inside = true;
    u64 address = map.address, rest = e;
    for (int d = 0; d < 4; ++d) {
      const long long c = at[d] + static_cast<long long>(rest % map.box[d]);
      rest /= map.box[d];
      inside &= c >= 0 && c < static_cast<long long>(map.extents[d]);
      address += c * (d == 0 ? map.item : map.strides[d - 1]);
    }
    const u32 swizzled = place ^ (place >> 7 & static_cast<u32>(map.swizzle)) << 4;
    visit(swizzled, inside ? reinterpret_cast<char*>(address) : nullptr);
  }
}
// Floats of 10 bits behind the point are rounded on the way, ties to even (H200).
static void round_element(unsigned char* element) {
  u32 bits;
  std::memcpy(&bits, element, 4);
  if ((bits >> 23 & 0xff) != 0xff) bits += 0xfff + (bits >> 13 & 1);
  bits &= ~0x1fffu;
  std::memcpy(element, &bits, 4);
}
static const char* const kMapTypes[] = {"u8",  "f64", "f32", "f16", "bf16",
                                        "s64", "s32", "u64", "u32", "tf32"};
static const u64 kTf32 = 9;

static u32 tile_bytes(const Map& map) { return map.box[0] * map.box[1] * map.box[2] * map.box[3] * map.item; }

void tensor_load(u32 shared, const void* given, int x, int y, int z, u32 barrier, u16 blocks,
                 int w) {
  const char* what = "a tensor load";
  const Map map = *static_cast<const Map*>(given);
  const u32 bytes = tile_bytes(map);
  begin_bulk(what);
  const auto& cluster = self->block->cluster->blocks;
  for (unsigned rank = 0; rank < cluster.size(); ++rank) {
    if (blocks ? !(blocks >> rank & 1) : cluster[rank] != self->block) continue;
    Block* block = cluster[rank];
    check_barrier(block, barrier, what);
    proxy_poison(block, shared, bytes, what);
    begin_load(block, [=] {
      Bytes tile(bytes);
      walk(map, shared, {x, y, z, w}, [&](u32 place, const char* from) {
        unsigned char* const to = &tile[place - shared];
        if (from)
          std::memcpy(to, from, map.item);
        else
          std::memset(to, 0, map.item);
        if (map.type == kTf32) round_element(to);
      });
      proxy_write(block, shared, tile.data(), bytes, what);
      complete(block, barrier, bytes);
    });
  }
}

static void note_tile(const Map& map, u32 shared, const int (&at)[4], Access access) {
  const char *first = nullptr, *end = nullptr;
  const auto note = [&] {
    if (first) note_access(first, end - first, access);
  };
  walk(map, shared, at, [&](u32, const char* to) {
    if (!to) return;
    if (to != end) {
      note();
      first = to;
    }
    end = to + map.item;
  });
  note();
}

void tensor_store(const void* given, u32 shared, int x, int y, int z, bool adds) {
  const Map map = *static_cast<const Map*>(given);
  note_tile(map, shared, {x, y, z, 0}, adds ? Access::kReduction : Access::kStore);
  begin_store(shared, tile_bytes(map), [=](const Bytes& data) {
    walk(map, shared, {x, y, z, 0}, [&](u32 place, char* to) {
      if (!to) return;
      const Bytes value(&data[place - shared], &data[place - shared] + map.item);
      if (adds)
        reduce_as("add", kMapTypes[map.type], to, value);
      else
        std::memcpy(to, value.data(), map.item);
    });
  });
}

}  // namespace cpu
