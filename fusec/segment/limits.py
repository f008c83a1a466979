"""Limits of one kernel: a segment that exceeds one is rejected, and parts of it are proposed.

None is a property of the GPU: registers, shared memory and grids are limited by the target.
"""

from __future__ import annotations

MOST_LENGTH = 1.7
"""Maximum predicted NVRTC compile time of a kernel, in seconds.

Compile time grows superlinearly: on one core (NVRTC 13.0, sm_90a) it is 4 s for 64 steps of sin(x)
+ cos(x) and 37 s for 256. The prediction is 0.027 s per step, so a kernel has 31 to 62 of them and
takes 1.3 to 4 s. Plain arithmetic takes 0.0007 s per operation.
"""
MOST_AGAIN = 0.25
"""Maximum excess, in seconds, over the compile time if every value were computed once.

No kernel of the corpus exceeds 0.1; of 100 chained row maxima, six to fifteen fit into a kernel. It
bounds recomputation at shifted indices: a kernel with 16 reads of a sum of shifts, under 47
conditions, uses 132 registers; with 64, under 255 conditions, it compiles for 2.3 s and spills.
"""
MOST_MAPS = 32
"""Average number of index maps per node up to which a kernel is considered: shifts of shifts double
them."""
MOST_ARMS = 32
"""Maximum number of tensors that one kernel concatenates: each element compares its index with the
bounds of each."""
