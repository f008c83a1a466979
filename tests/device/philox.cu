#include "philox.cuh"

extern "C" __global__ void kernel(double* values, unsigned* words, unsigned long long seed) {
  const fusec::u64 element = threadIdx.x;
  double value = fusec::uniform_f32(0.0f, 1.0f, seed, 1, element);
  value += fusec::uniform_f64(0.0, 1.0, seed, 2, element);
  value += fusec::normal_f32(0.0f, 1.0f, seed, 3, element);
  value += fusec::normal_f64(0.0, 1.0, seed, 4, element);
  const fusec::PhiloxWords block = fusec::philox(seed, 5, element);
  words[threadIdx.x] = fusec::pick_word(block, element % 4);
  value += fusec::turn_f32(fusec::unit_f32(block.word[0], 1), fusec::unit_f32(block.word[1]), true);
  const double unit = fusec::unit_f64(block.word[2], block.word[3], 1);
  const fusec::RandomWords<8> drawn = fusec::random_words<8>(seed, 6, 8 * element);
  value += fusec::uniform_f32(0.0f, 1.0f, drawn, 5) + fusec::normal_f32(0.0f, 1.0f, drawn, 3);
  values[threadIdx.x] = value + fusec::turn_f64(unit, unit, false);
}
