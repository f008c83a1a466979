"""The records of a host program, and their tags in JSON; sizes are expressions."""

from __future__ import annotations

from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    Copy,
    EncodeTensorMap,
    For,
    Free,
    GetStream,
    Launch,
    Memset,
    Post,
    Receive,
    Send,
    SetStream,
    Share,
    Synchronize,
    Unshare,
    Wait,
)
from fusec.hostir.program import Buffer, IndexCheck, Scalar
from fusec.hostir.records import Records
from fusec.schedule.plan import (
    Guard,
    MailboxArgument,
    ScalarArgument,
    SizeArgument,
    TensorArgument,
    TensorMapArgument,
    WorkspaceArgument,
)

RECORDS = Records({
    Allocate: "allocate", Free: "free", Alias: "alias", Memset: "memset", Copy: "copy",
    EncodeTensorMap: "encode", Launch: "launch", Buffer: "buffer", Scalar: "scalar_input",
    Guard: "guard", TensorArgument: "tensor", SizeArgument: "size", ScalarArgument: "scalar",
    WorkspaceArgument: "workspace", TensorMapArgument: "tensor_map",
    MailboxArgument: "mailboxes", IndexCheck: "check",
    Post: "post", For: "for", GetStream: "get_stream", SetStream: "set_stream",
    Synchronize: "synchronize", Collective: "collective", Send: "send", Receive: "receive",
    Wait: "wait", Share: "share", Unshare: "unshare",
})  # fmt: skip
