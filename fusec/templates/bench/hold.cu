// Keeps the stream busy for some time, while the host issues what comes next.
extern "C" __global__ void hold(unsigned long long nanoseconds) {
  unsigned long long begin;
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
}
