"""Cross entropy as the log-sum-exp of each row of logits less the logit of the true class."""

from fusec import DataType, FusionDefinition

with FusionDefinition("cross_entropy") as fd:
    T = fd.define_dim("T", 256)  # tokens
    V = fd.define_dim("V", 32000, multiple_of=8)  # words of the vocabulary
    logits = fd.define_tensor(shape=[T, V], contiguity=True, dtype=DataType.BFloat16, range=(-8, 8))
    # The logits of the true classes.
    picked = fd.define_tensor(shape=[T], contiguity=True, dtype=DataType.Float)

    l = fd.ops.cast(logits, dtype=DataType.Float)  # noqa: E741
    top = fd.ops.max(l, dims=[1])
    total = fd.ops.sum(fd.ops.exp(l - fd.ops.broadcast(top, [False, True])), dims=[1])
    lse = fd.ops.log(total) + top
    loss = lse - picked
    mean_loss = fd.ops.mean(loss, dims=[0])
    fd.add_output(mean_loss)
    fd.add_output(loss)
    fd.add_output(lse)
