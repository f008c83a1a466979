// wgmma: sums are written when they are waited for.
#include "fibers_on_cpu.h"

namespace cpu {

// All four instructions are executed by the lanes of a warp together.
static void meet() { ballot(true); }

void wgmma_fence() {
  meet();
  self->fenced = true;
}

// Where element `k` of row `row` of an operand lies (128-byte swizzle).
static u32 operand_place(u64 descriptor, bool transposed, u32 row, u32 k) {
  const u32 start = (descriptor & 0x3fff) << 4;
  const u32 leading = (descriptor >> 16 & 0x3fff) << 4, stride = (descriptor >> 32 & 0x3fff) << 4;
  const u32 place = transposed
                        ? start + row / 64 * leading + k / 8 * stride + k % 8 * 128 + row % 64 * 2
                        : start + row / 8 * stride + row % 8 * 128 + k * 2;
  return place ^ (place >> 7 & 7) << 4;
}
static float byte_to_float(unsigned char bits, char mantissa) {
  if (mantissa == '2') return f16_to_float(static_cast<u16>(bits << 8));
  if ((bits & 0x7f) == 0x7f) return std::nanf("");
  return f16_to_float(static_cast<u16>((bits & 0x80) << 8 | (bits & 0x7f) << 7)) * 256.0f;
}
// The sum of 8-bit products as tensor cores take it: of each term 13 bits behind the point of the
// largest are kept.
static float cut_sum(float sum, const double (&products)[32]) {
  double largest = std::fabs(sum), total = 0.0;
  for (const double each : products) largest = std::fmax(largest, std::fabs(each));
  if (!std::isfinite(largest) || largest == 0.0) return static_cast<float>(sum + largest);
  const double quantum = std::ldexp(1.0, std::ilogb(largest) - 13);
  for (const double each : products) total += std::trunc(each / quantum);
  return static_cast<float>((total + std::trunc(sum / quantum)) * quantum);
}
static void perform_bytes(const Product& p) {
  const u32 lane = current % 32, row = current % 128 / 32 * 16 + lane / 4;
  const auto operand = [&](u64 descriptor, char mantissa, u32 row, float (&values)[32]) {
    for (u32 k = 0; k < 32; ++k) {
      const u32 place = operand_place(descriptor, false, row, k / 2) + k % 2;
      unsigned char bits;
      std::memcpy(&bits, proxy_at(self->block, place, 1, "wgmma"), 1);
      values[k] = byte_to_float(bits, mantissa);
    }
  };
  float left[2][32], right[32];
  for (u32 h = 0; h < 2; ++h) operand(p.a, p.bytes[4], row + 8 * h, left[h]);
  for (int c = 0; c < p.columns / 4; ++c) {
    operand(p.b, p.bytes[9], c / 2 * 8 + lane % 4 * 2 + c % 2, right);
    for (u32 h = 0; h < 2; ++h) {
      float& target = p.sums[c / 2 * 4 + 2 * h + c % 2];
      double products[32];
      for (u32 k = 0; k < 32; ++k) products[k] = static_cast<double>(left[h][k]) * right[k];
      target = cut_sum(p.adds ? target : 0.0f, products);
    }
  }
}
// Of floats the bits behind the first 10 are cut off.
static void perform_tf32(const Product& p) {
  const u32 lane = current % 32, row = current % 128 / 32 * 16 + lane / 4;
  const auto operand = [&](u64 descriptor, u32 row, float (&values)[8]) {
    for (u32 k = 0; k < 8; ++k) {
      u32 bits;
      const u32 place = operand_place(descriptor, false, row, 2 * k);
      std::memcpy(&bits, proxy_at(self->block, place, 4, "wgmma"), 4);
      bits &= ~0x1fffu;
      std::memcpy(&values[k], &bits, 4);
    }
  };
  float left[2][8], right[8];
  for (u32 h = 0; h < 2; ++h) operand(p.a, row + 8 * h, left[h]);
  for (int c = 0; c < p.columns / 4; ++c) {
    operand(p.b, c / 2 * 8 + lane % 4 * 2 + c % 2, right);
    for (u32 h = 0; h < 2; ++h) {
      float& target = p.sums[c / 2 * 4 + 2 * h + c % 2];
      double sum = p.adds ? target : 0.0;
      for (u32 k = 0; k < 8; ++k) sum += static_cast<double>(left[h][k]) * right[k];
      target = static_cast<float>(sum);
    }
  }
}
static void perform(const Product& p) {
  if (proxies) note_writes(self);
  if (p.is_tf32) return perform_tf32(p);
  if (p.bytes != nullptr) return perform_bytes(p);
  const auto widen = p.bf16 ? bf16_to_float : f16_to_float;
  const auto operand = [&](u64 descriptor, bool transposed, u32 row, float (&values)[16]) {
    for (u32 k = 0; k < 16; ++k) {
      u16 bits;
      const u32 place = operand_place(descriptor, transposed, row, k);
      std::memcpy(&bits, proxy_at(self->block, place, 2, "wgmma"), 2);
      values[k] = widen(bits);
    }
  };
  const u32 lane = current % 32, row = current % 128 / 32 * 16 + lane / 4;
  float left[2][16], right[16];
  if (p.registers == nullptr) {
    for (u32 h = 0; h < 2; ++h) operand(p.a, p.transpose_a, row + 8 * h, left[h]);
  } else {
    if (std::memcmp(p.registers, p.given, sizeof p.given)) {
      fail("an operand in registers was written while its product ran");
    }
    std::memcpy(left, p.left, sizeof left);
  }
  for (int c = 0; c < p.columns / 4; ++c) {
    operand(p.b, p.transpose_b, c / 2 * 8 + lane % 4 * 2 + c % 2, right);
    for (u32 h = 0; h < 2; ++h) {
      float& target = p.sums[c / 2 * 4 + 2 * h + c % 2];
      double sum = p.adds ? target : 0.0;
      for (u32 k = 0; k < 16; ++k) sum += static_cast<double>(left[h][k]) * right[k];
      target = static_cast<float>(sum);
    }
  }
}
void wgmma(float* sums, int columns, const char* type, u64 a, u64 b, int adds, int transpose_a,
           int transpose_b) {
  meet();
  if (!self->fenced) fail("wgmma without a wgmma.fence after its sums were written");
  if (a >> 62 != 1 || b >> 62 != 1) fail("a wgmma operand without the 128-byte swizzle");
  const Product product{sums,     columns, a, b, type[0] == 'b', transpose_a != 0, transpose_b != 0,
                        adds != 0};
  if (copies_at_once) perform(product);
  self->products.open.push_back(product);
}
void wgmma_fp8(float* sums, int columns, const char* types, u64 a, u64 b, int adds) {
  meet();
  if (!self->fenced) fail("wgmma without a wgmma.fence after its sums were written");
  if (a >> 62 != 1 || b >> 62 != 1) fail("a wgmma operand without the 128-byte swizzle");
  Product product{sums, columns, a, b, false, false, false, adds != 0};
  product.bytes = types;
  if (copies_at_once) perform(product);
  self->products.open.push_back(product);
}
void wgmma_tf32(float* sums, int columns, u64 a, u64 b, int adds) {
  meet();
  if (!self->fenced) fail("wgmma without a wgmma.fence after its sums were written");
  if (a >> 62 != 1 || b >> 62 != 1) fail("a wgmma operand without the 128-byte swizzle");
  Product product{sums, columns, a, b, false, false, false, adds != 0};
  product.is_tf32 = true;
  if (copies_at_once) perform(product);
  self->products.open.push_back(product);
}
// The first operand in registers: each lane of a quad has four words of its two rows.
void wgmma_registers(float* sums, int columns, const char* type, const u32* a, u64 b,
                     bool transpose_b, int adds) {
  const LaneWords* all = show({{a[0], a[1], a[2], a[3]}});
  if (!self->fenced) fail("wgmma without a wgmma.fence after its sums were written");
  if (b >> 62 != 1) fail("a wgmma operand without the 128-byte swizzle");
  Product product{sums, columns, 0, b, type[0] == 'b', false, transpose_b, adds != 0, a};
  std::memcpy(product.given, a, sizeof product.given);
  const auto widen = product.bf16 ? bf16_to_float : f16_to_float;
  for (u32 h = 0; h < 2; ++h) {
    for (u32 k = 0; k < 16; ++k) {
      const u64 word = all[current % 32 / 4 * 4 + k % 8 / 2].words[h + k / 8 * 2];
      product.left[h][k] = widen(static_cast<u16>(word >> 16 * (k % 2)));
    }
  }
  if (copies_at_once) perform(product);
  self->products.open.push_back(product);
}
void wgmma_commit() {
  meet();
  self->products.commit();
}
void wgmma_wait(int pending) {
  auto& groups = self->products.closed;
  while (groups.size() > static_cast<std::size_t>(pending)) {
    if (!copies_at_once) {
      for (const Product& each : groups.front()) perform(each);
    }
    groups.erase(groups.begin());
  }
  if (pending == 0) self->fenced = false;
  meet();  // what a warp waited for has happened for all its lanes
}

}  // namespace cpu
