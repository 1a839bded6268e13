"""Puts a name to what a candidate raised. It is the guest's claim; the judge turns it into an outcome."""

from __future__ import annotations

import traceback
from typing import Any

import torch

from agentgen import jit
from agentgen.sandbox.guest.window import WrongOutput

MAX_TEXT = 6000


def describe(error: BaseException, stage: str) -> dict[str, Any]:
    """Returns the failure as a message: kind, one line, and the traceback's end.

    Args:
        error: What the candidate raised.
        stage: "build" while its module is loaded and its model constructed, "run" afterwards.
    """
    text = "".join(traceback.format_exception(error))
    line = f"{type(error).__name__}: {error}"
    return {"failure": {"kind": _kind(error, stage), "message": line[:MAX_TEXT], "traceback": text[-MAX_TEXT:]}}


def _kind(error: BaseException, stage: str) -> str:
    if isinstance(error, WrongOutput):
        return error.kind
    # torch's CPU allocator raises a plain RuntimeError.
    words = ("out of memory", "can't allocate memory")
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or any(word in str(error) for word in words):
        return "memory"
    # Triton compiles at the first call, and jit may be called there too: a compiler's refusal is no crash.
    if stage == "build" or isinstance(error, jit.CompileError) or _from_triton_compiler(error):
        return "build"
    return "crash"


def _from_triton_compiler(error: BaseException) -> bool:
    """By its type, or because it was raised inside Triton's compiler: MLIR's failures are plain RuntimeErrors."""
    seen: BaseException | None = error
    while seen is not None:
        module = type(seen).__module__
        if module.startswith("triton.compiler") or type(seen).__name__ in {"PTXASError", "OutOfResources"}:
            return True
        frames = traceback.extract_tb(seen.__traceback__)
        if frames and any(part in frames[-1].filename for part in ("/triton/compiler/", "/triton/backends/")):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
