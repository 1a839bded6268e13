"""Which architecture a GPU has, in a compiler's words. Asked of the driver alone: importing torch takes seconds."""

from __future__ import annotations

import contextlib
import ctypes

_CAPABILITY = (75, 76)
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR."""


def named(major: int, minor: int) -> str:
    """Returns the name a compiler knows a compute capability by, e.g. `sm_90a`."""
    number = 10 * major + minor
    return f"sm_{number}a" if number >= 90 else f"sm_{number}"


def architecture(device: str) -> str | None:
    """Returns the architecture of `cuda:N` among the GPUs that this process may see; None for a CPU, or where there is
    no such GPU."""
    kind, _, index = device.partition(":")
    if kind != "cuda":
        return None
    with contextlib.suppress(OSError):
        cuda, handle, value = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_int()
        if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(handle), int(index or 0)):
            return None
        found: list[int] = []
        for attribute in _CAPABILITY:
            if cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, handle):
                return None
            found.append(value.value)
        return named(*found)
    return None
