// The sums of a tensor-core product, regrouped for wide accesses. The four lanes of a quad hold two
// neighbouring columns each of every block of eight columns: enough for 4 bytes of a half type.
// After the exchange each lane holds all eight columns of one block in four.
#pragma once

#include "shuffle.cuh"

namespace fusec {

// v[2 f + e] is column 2 q + e of block f in lane q of a quad; after it, v[i] is column i of block
// q. A transpose of a 4 x 4 matrix of pairs: first within 2 x 2 pieces, then between them. All
// lanes of the warp call it.
__device__ __forceinline__ void transpose_quad(float (&v)[8], int q) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = (q & bit) != 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if ((i / 2 & bit) != 0) continue;
      float& low = v[i];
      float& high = v[i + 2 * bit];
      const float received = shuffle_xor(upper ? low : high, bit);
      if (upper) {
        low = received;
      } else {
        high = received;
      }
    }
  }
}

}  // namespace fusec
