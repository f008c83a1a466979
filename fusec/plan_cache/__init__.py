"""Plans on disk, beside the kernels built from them: what a fusion was planned as, by its digest.

An entry holds records as a manifest does, never code or pickles: the host program, and the text and
the launch parameters of each kernel. It is trusted as machine code is: see `fusec.run.entries`.
"""
