"""Limits of one kernel: a segment that exceeds one of them is refused, and parts of it are offered.

None is a property of the GPU: registers, shared memory and grids are limited by the target.
"""

from __future__ import annotations

MOST_LENGTH = 1.7
"""Seconds that NVRTC is predicted to take for a kernel at most.

Its time grows faster than the text: on one core (NVRTC 13.0, sm_90a) it takes 4 s for 64 steps of
sin(x) + cos(x), 37 s for 256. Predicted are 0.027 s a step, so that a
kernel has 31 to 62 of them and takes 1.3 to 4 s. Plain arithmetic takes 0.0007 s an operation.
"""
MOST_AGAIN = 0.25
"""Seconds of these that a kernel may take beyond what its values would take computed once each.

Of the corpus, no kernel takes more than 0.1; of 100 row maxima, each of what the last one left of
its row, six to fifteen fit into a kernel. It bounds what is computed again at shifted places:
a kernel of 16 reads of a sum of shifts, under 47 conditions, holds 132 registers; of 64, under 255,
it takes 2.3 s and spills.
"""
MOST_MAPS = 32
"""Index maps of a node, on average, up to which a kernel is looked at at all: shifts of shifts
double them."""
MOST_ARMS = 32
"""Tensors that are put beside one another by one kernel: each element tests the place of each."""
