"""Plans on disk, in the folder of the kernels built from them, by the digest of the fusion.

An entry holds records as a manifest does, never code or pickles: the host program, and the source
and the launch parameters of each kernel. It is trusted like machine code: see `fusec.run.entries`.
"""
