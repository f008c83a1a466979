// ldmatrix and mma.sync on the host: the lanes of a warp show each other their registers.
#pragma once

#include <cstring>
#include <vector>

#include "storage.cuh"

namespace cpu {

struct LaneWords {
  unsigned long long words[6];
};
static std::vector<LaneWords> lane_words;

// What every lane of the warp shows, until all have called `seen`.
static const LaneWords* show(const LaneWords& own) {
  lane_words.resize(std::max<std::size_t>(lane_words.size(), threads()));
  lane_words[current] = own;
  wait_for_warp();
  return &lane_words[current / 32 * 32];
}
static void seen() { wait_for_warp(); }

static void load_matrices(unsigned (&r)[4], const void* row, bool transposed) {
  const LaneWords* all = show({{reinterpret_cast<unsigned long long>(row)}});
  const unsigned lane = current % 32;
  for (int p = 0; p < 4; ++p) {
    unsigned short pair[2];
    for (int e = 0; e < 2; ++e) {
      const unsigned along = lane % 4 * 2 + e, across = lane / 4;
      const auto* from = reinterpret_cast<const unsigned short*>(
          all[8 * p + (transposed ? along : across)].words[0]);
      if (reinterpret_cast<std::uintptr_t>(from) % 16) missing("rows that are not aligned");
      pair[e] = from[transposed ? across : along];
    }
    std::memcpy(&r[p], pair, 4);
  }
  seen();
}

template <class T>
float half_to_float(unsigned word, int half) {
  const auto bits = static_cast<unsigned short>(word >> 16 * half);
  return std::is_same<T, fusec::bf16>::value ? bf16_to_float(bits) : f16_to_float(bits);
}

template <class T>
void multiply(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  const LaneWords* all = show({{a[0], a[1], a[2], a[3], b[0], b[1]}});
  const unsigned lane = current % 32;
  for (int c = 0; c < 4; ++c) {
    const unsigned row = lane / 4, column = lane % 4 * 2 + c % 2;
    double sum = d[c];
    for (int k = 0; k < 16; ++k) {
      const unsigned left = all[row * 4 + k % 8 / 2].words[c / 2 + 2 * (k / 8)];
      const unsigned right = all[column * 4 + k % 8 / 2].words[4 + k / 8];
      sum += static_cast<double>(half_to_float<T>(left, k % 2)) * half_to_float<T>(right, k % 2);
    }
    d[c] = static_cast<float>(sum);
  }
  seen();
}

}  // namespace cpu

namespace fusec {

inline void ldmatrix_x4(u32 (&r)[4], const void* row) { cpu::load_matrices(r, row, false); }
inline void ldmatrix_x4_trans(u32 (&r)[4], const void* row) { cpu::load_matrices(r, row, true); }
template <class T>
void mma_16816(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  cpu::multiply<T>(d, a, b);
}

}  // namespace fusec
