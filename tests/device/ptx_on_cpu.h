// What PTX instructions do on the host. Operands come in the order of their numbers; addresses of
// shared memory are those of cpu::shared_address.
#pragma once

namespace cpu {

using u16 = unsigned short;
using u32 = unsigned;
using u64 = unsigned long long;

// Conversions and arithmetic.
static void join_halves(float& result, u16 low, u16 high) {
  result = __uint_as_float(static_cast<u32>(high) << 16 | low);
}
static void widen_f16(float& result, u16 bits) { result = f16_to_float(bits); }
static void narrow_f16(u16& bits, float value) { bits = float_to_f16(value); }
static void narrow_bf16(u16& bits, float value) { bits = float_to_bf16(value); }
static void narrow_two_f16(u32& pair, float high, float low) {
  pair = static_cast<u32>(float_to_f16(high)) << 16 | float_to_f16(low);
}
static void narrow_two_bf16(u32& pair, float high, float low) {
  pair = static_cast<u32>(float_to_bf16(high)) << 16 | float_to_bf16(low);
}
template <bool kBf16>
void multiply_add_two(u32& result, u32 a, u32 b, u32 c) {
  const auto widen = kBf16 ? bf16_to_float : f16_to_float;
  const auto part = [&](unsigned at) {
    const auto of = [&](u32 pair) { return widen(static_cast<u16>(pair >> at)); };
    const float sum = of(a) * of(b) + of(c);
    return static_cast<u32>(kBf16 ? float_to_bf16(sum) : float_to_f16(sum)) << at;
  };
  result = part(0) | part(16);
}
static void and_or(u32& result, u32 a, u32 mask, u32 c) { result = (a & mask) | c; }
static void divide(float& quotient, float a, float b) { quotient = a / b; }

// Approximations are off by all that the PTX manual lets them be, in a direction drawn by the bits
// of the operand: 2 units of 2^-23 for ex2, 1 for rcp. Numbers below 2^-126 are 0.
static float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
static float off_by(double exact, float operand, double units) {
  u32 bits;
  std::memcpy(&bits, &operand, 4);
  const double direction = (bits * 0x9E3779B9u >> 31) ? 1.0 : -1.0;
  return flushed(static_cast<float>(exact * (1.0 + direction * units * 0x1p-23)));
}
static void power_of_two(float& power, float x) {
  power = off_by(std::exp2(static_cast<double>(flushed(x))), x, x == 0.0f ? 0.0 : 1.4);
}
static void inverse(float& result, float x) {
  result = off_by(1.0 / static_cast<double>(flushed(x)), x, x == 1.0f ? 0.0 : 0.5);
}
static void max_with_nan(float& result, float a, float b) { result = max_nan(a, b); }
static void min_with_nan(float& result, float a, float b) { result = min_nan(a, b); }

// Flags. Blocks run in turns on one processor: nothing is torn, and every write is seen.
void note_flag(const u32* flag);
void note_acquire(const void* flag);
void note_release(const void* flag);
void released();
static void load_once(u32& a, u32& b, u32& c, u32& d, const u32* words) {
  a = words[0];
  b = words[1];
  c = words[2];
  d = words[3];
}
static void load_once(u32& a, u32& b, const u32* words) {
  a = words[0];
  b = words[1];
}
static void load_once(u32& a, const u32* words) { a = words[0]; }
template <class T>
static void load_acquire(T& value, const T* flag) {
  value = *flag;
  note_acquire(flag);
  note_flag(reinterpret_cast<const u32*>(flag));  // of 64 bits the lower ones change
}
static void store_relaxed(u32* target, u32 value) {
  *target = value;
  note_atomic(target, sizeof *target);
}
template <class T>
static void store_release(T* flag, T value) {
  *flag = value;
  note_atomic(flag, sizeof *flag);
  note_release(flag);
  released();
}
// Words that come together with numbers, by which a reader knows that they have arrived.
static void load_line_of_words(u32& a, u32& b, u32& c, u32& d, const u32* line) {
  a = line[0];
  b = line[1];
  c = line[2];
  d = line[3];
  note_acquire(line);
  note_flag(line);
}
static void store_line_of_words(u32* line, u32 a, u32 b, u32 c, u32 d) {
  line[0] = a;
  line[1] = b;
  line[2] = c;
  line[3] = d;
  note_atomic(line, 4 * sizeof *line);
  note_release(line);
  released();
}
static void add_release(u32& before, u32* flag, u32 amount) {
  before = atomicAdd(flag, amount);
  note_acquire(flag);
  note_release(flag);
  released();
}
static void count_and_wrap(u32& before, u32* counter, u32 last) {
  before = *counter;
  *counter = before >= last ? 0 : before + 1;
  note_atomic(counter, sizeof *counter);
  note_acquire(counter);
  note_release(counter);
  released();
}

// Copies of each thread.
void copy(u32 shared, const void* global, int bytes, int valid);
static void copy_16(u32 shared, const void* global, int valid = 16, u64 = 0) {
  copy(shared, global, 16, valid);
}
void copy_commit();
void copy_wait(int pending);
void check_copies();
static void copy_wait_all() {
  copy_commit();
  copy_wait(0);
}

// mbarriers. A test of a phase waits for it.
void barrier_init(u32 barrier, u32 arrivals);
void barrier_invalidate(u32 barrier);
void barrier_arrive(u32 barrier);
void barrier_arrive_expect(u32 barrier, u32 bytes);
void barrier_expect(u32 barrier, u32 bytes);
void barrier_arrive_at(u32 barrier, u32 rank);
void barrier_try_wait(u32& complete, u32 barrier, u32 parity);

// The asynchronous proxy.
void fence_barrier_init();
void fence_proxy_shared();
void fence_proxy();
void fence_proxy_global();
void bulk_commit();
void bulk_wait(int pending);
void bulk_wait_read(int pending);
void elect(u32& elected);
static void no_policy(u64& policy) { policy = 0; }
static void prefetch(const void*) {}
void prefetch_l2(const void* from);
static void let_next_kernel_start() {}
void wait_for_kernels();
void bulk_load(u32 shared, const void* global, u32 bytes, u32 barrier, u64 policy = 0);
void bulk_store(void* global, u32 shared, u32 bytes);
void bulk_reduce(const char* operation, void* global, u32 shared, u32 bytes);
void tensor_load(u32 shared, const void* map, int x, int y, int z, u32 barrier, u16 blocks,
                 int w = 0);
static void tensor_load_2d(u32 shared, const void* map, int x, int y, u32 barrier, u64 = 0) {
  tensor_load(shared, map, x, y, 0, barrier, 0);
}
static void tensor_load_2d_multicast(u32 shared, const void* map, int x, int y, u32 barrier,
                                     u16 blocks) {
  tensor_load(shared, map, x, y, 0, barrier, blocks);
}
static void tensor_load_3d_multicast(u32 shared, const void* map, int x, int y, int z, u32 barrier,
                                     u16 blocks, u64 = 0) {
  tensor_load(shared, map, x, y, z, barrier, blocks);
}
static void tensor_load_3d(u32 shared, const void* map, int x, int y, int z, u32 barrier, u64 = 0) {
  tensor_load(shared, map, x, y, z, barrier, 0);
}
static void tensor_load_4d(u32 shared, const void* map, int x, int y, int z, int w, u32 barrier) {
  tensor_load(shared, map, x, y, z, barrier, 0, w);
}
void tensor_store(const void* map, u32 shared, int x, int y, int z, bool adds);
static void tensor_store_2d(const void* map, u32 shared, int x, int y) {
  tensor_store(map, shared, x, y, 0, false);
}
static void tensor_store_3d(const void* map, u32 shared, int x, int y, int z) {
  tensor_store(map, shared, x, y, z, false);
}
static void tensor_reduce_2d(const void* map, u32 shared, int x, int y) {
  tensor_store(map, shared, x, y, 0, true);
}
static void tensor_reduce_3d(const void* map, u32 shared, int x, int y, int z) {
  tensor_store(map, shared, x, y, z, true);
}

// Clusters.
void cluster_rank(u32& rank);
static void lane_number(int& lane) { lane = static_cast<int>(current % 32); }
static void cluster_address(u32& address, u32 own, u32 rank) {
  address = (own & 0xffffff) | (rank + 1) << 24;
}
void store_remote(u32 address, u32 value, u32 barrier);
static void load_remote(u32& value, u32 address) { std::memcpy(&value, shared_at(address), 4); }
static void load_remote(float& x, float& y, float& z, float& w, u32 address) {
  const char* from = shared_at(address);
  std::memcpy(&x, from, 4);
  std::memcpy(&y, from + 4, 4);
  std::memcpy(&z, from + 8, 4);
  std::memcpy(&w, from + 12, 4);
}

// Products of a warpgroup.
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(int pending);
void wgmma(float* sums, int columns, const char* type, u64 a, u64 b, int adds, int transpose_a,
           int transpose_b);
void wgmma_fp8(float* sums, int columns, const char* types, u64 a, u64 b, int adds);
void wgmma_tf32(float* sums, int columns, u64 a, u64 b, int adds);
void wgmma_registers(float* sums, int columns, const char* type, const u32* a, u64 b,
                     bool transpose_b, int adds);
static void set_registers(int) {}

// Products of a warp.
static u16* matrix_row(const LaneWords* all, unsigned lane) {
  char* row = shared_at(static_cast<u32>(all[lane].words[0]));
  if (reinterpret_cast<std::uintptr_t>(row) % 16) fail("a row of a matrix that is not aligned");
  return reinterpret_cast<u16*>(row);
}
static u32 load_matrix(const LaneWords* all, unsigned matrix, bool transposed) {
  u32 pair = 0;
  for (unsigned e = 0; e < 2; ++e) {
    const unsigned along = current % 4 * 2 + e, across = current % 32 / 4;
    const u16* row = matrix_row(all, 8 * matrix + (transposed ? along : across));
    pair |= static_cast<u32>(row[transposed ? across : along]) << 16 * e;
  }
  return pair;
}
template <bool kTransposed>
void load_matrices(u32& r0, u32& r1, u32& r2, u32& r3, u32 row) {
  check_copies();
  const LaneWords* all = show({{row}});
  u32* const registers[4] = {&r0, &r1, &r2, &r3};
  for (unsigned p = 0; p < 4; ++p) *registers[p] = load_matrix(all, p, kTransposed);
}
template <bool kTransposed>
void load_matrices(u32& r0, u32& r1, u32 row) {
  check_copies();
  const LaneWords* all = show({{row}});
  r0 = load_matrix(all, 0, kTransposed);
  r1 = load_matrix(all, 1, kTransposed);
}
template <bool kTransposed, class... Words>
void store_matrices(u32 row, Words... words) {
  const LaneWords* all = show({{row}});
  const u32 registers[] = {words...};
  for (unsigned p = 0; p < sizeof...(words); ++p) {
    for (unsigned e = 0; e < 2; ++e) {
      const unsigned along = current % 4 * 2 + e, across = current % 32 / 4;
      u16* to = matrix_row(all, 8 * p + (kTransposed ? along : across));
      to[kTransposed ? across : along] = static_cast<u16>(registers[p] >> 16 * e);
    }
  }
}
template <bool kBf16>
void multiply(float& d0, float& d1, float& d2, float& d3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0,
              u32 b1) {
  const LaneWords* all = show({{a0, a1, a2, a3, b0, b1}});
  const unsigned lane = current % 32;
  float* const d[4] = {&d0, &d1, &d2, &d3};
  const auto half = [](u64 word, int k) {
    const u16 bits = static_cast<u16>(word >> 16 * (k % 2));
    return static_cast<double>(kBf16 ? bf16_to_float(bits) : f16_to_float(bits));
  };
  for (int c = 0; c < 4; ++c) {
    const unsigned row = lane / 4, column = lane % 4 * 2 + c % 2;
    double sum = *d[c];
    for (int k = 0; k < 16; ++k) {
      const u64 left = all[row * 4 + k % 8 / 2].words[c / 2 + 2 * (k / 8)];
      const u64 right = all[column * 4 + k % 8 / 2].words[4 + k / 8];
      sum += half(left, k) * half(right, k);
    }
    *d[c] = static_cast<float>(sum);
  }
}
static void round_to_tf32(u32& bits, float x) {
  std::memcpy(&bits, &x, 4);
  if (std::isfinite(x)) bits = (bits + (1u << 12)) & ~((1u << 13) - 1);
}
static void multiply_tf32(float& d0, float& d1, float& d2, float& d3, u32 a0, u32 a1, u32 a2,
                          u32 a3, u32 b0, u32 b1) {
  const LaneWords* all = show({{a0, a1, a2, a3, b0, b1}});
  const unsigned lane = current % 32;
  float* const d[4] = {&d0, &d1, &d2, &d3};
  const auto number = [](u64 word) {
    const u32 bits = static_cast<u32>(word) & ~((1u << 13) - 1);  // the others do not count
    float value;
    std::memcpy(&value, &bits, 4);
    return static_cast<double>(value);
  };
  for (int c = 0; c < 4; ++c) {
    const unsigned row = lane / 4, column = lane % 4 * 2 + c % 2;
    double sum = *d[c];
    for (int k = 0; k < 8; ++k) {
      sum += number(all[row * 4 + k % 4].words[c / 2 + 2 * (k / 4)]) *
             number(all[column * 4 + k % 4].words[4 + k / 4]);
    }
    *d[c] = static_cast<float>(sum);
  }
}

}  // namespace cpu
