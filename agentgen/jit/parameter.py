"""One parameter of a compiled function: the C types that can be passed, and Python's values turned into them.

Sizes are those of Linux on 64 bits: `long` has 64. Not covered: structs, `half` and `long double` by value, references.
"""

from __future__ import annotations

import ctypes
import functools
import math
import numbers
import operator
import struct
from dataclasses import dataclass
from typing import Any

import torch

TYPES = {  # struct's format letter: its ctype, and the C types it stands for, their words sorted
    "?": (ctypes.c_bool, "bool"),
    "f": (ctypes.c_float, "float"),
    "d": (ctypes.c_double, "double"),
    "b": (ctypes.c_int8, "char,int8_t"),
    "B": (ctypes.c_uint8, "char unsigned,uint8_t"),
    "h": (ctypes.c_int16, "short,int16_t"),
    "H": (ctypes.c_uint16, "short unsigned,uint16_t"),
    "i": (ctypes.c_int32, "int,int32_t"),
    "I": (ctypes.c_uint32, "unsigned,uint32_t,uint"),
    "q": (ctypes.c_int64, "long,long long,int64_t,ptrdiff_t,ssize_t,intptr_t"),  # Linux on 64 bits: long has 64
    "Q": (ctypes.c_uint64, "long unsigned,long long unsigned,uint64_t,size_t,uintptr_t"),
    "P": (ctypes.c_void_p, ""),
}
CODES = {words: code for code, (_, names) in TYPES.items() for words in names.split(",") if words}
_BITS = {code: 1 if code == "?" else 8 * struct.calcsize(code) for code in TYPES if code not in "fdP"}
_RANGES = {c: (-(1 << (n - 1)), (1 << (n - 1)) - 1) if c.islower() else (0, (1 << n) - 1) for c, n in _BITS.items()}
_FLOAT_MAX = 3.4028235677973366e38  # from here on a double rounds to infinity as a float
_POINTEES = {
    **dict.fromkeys(("half", "__half", "_Float16"), torch.float16),
    **dict.fromkeys(("__nv_bfloat16", "nv_bfloat16"), torch.bfloat16),
    "float": torch.float32,
    "double": torch.float64,
}


@dataclass(frozen=True)
class Parameter:
    text: str
    code: str
    """struct's format letter; "P" is a pointer."""
    pointee: str = ""

    def convert(self, value: Any, device: str) -> int | float:
        """The address or the number in the declared type's range that `value` stands for; raises TypeError."""
        if self.code == "P":
            return self._address(value, device)
        if isinstance(value, torch.Tensor):
            raise TypeError("got a tensor where a number is declared; pass value.item() or declare a pointer")
        if self.code in "fd":
            if type(value) is not float and not isinstance(value, numbers.Real):
                raise TypeError(f"got {_shown(value)}, not a number")
            result = float(value)
            if self.code == "f" and abs(result) >= _FLOAT_MAX and not math.isinf(result):
                raise TypeError(f"{_shown(value)} does not fit; declare double")
            return result
        if type(value) is not int and not hasattr(value, "__index__"):
            raise TypeError(f"got {_shown(value)}, not an integer (use // or int())")
        low, high = _RANGES[self.code]
        if not low <= (result := operator.index(value)) <= high:
            raise TypeError(f"{_shown(value)} does not fit; declare a wider type, such as int64_t")
        return result

    def _address(self, value: Any, device: str) -> int:
        if isinstance(value, torch.Tensor):
            if not (value.is_cuda if device == "cuda" else value.is_cpu):
                raise TypeError(f"got a tensor on {value.device}, needs one on {device}")
            if not _may_point(self.pointee, value.dtype):
                raise TypeError(f"got a {value.dtype} tensor; convert it, or declare void* if its bytes are meant")
            return value.data_ptr()
        if value is None:
            return 0
        if type(value) is int and 0 <= value < 1 << 64:
            return value
        raise TypeError(f"got {_shown(value)}; pass a torch tensor, None or an address")


def _shown(value: Any) -> str:
    return f"{value!r:.60} ({type(value).__name__})"


@functools.cache
def _may_point(pointee: str, dtype: torch.dtype) -> bool:
    """Refuses sure mistakes only: another floating type, and a floating or 4-byte integer type over int64."""
    if dtype == torch.int64:
        return pointee not in (*_POINTEES, "int", "int32_t", "unsigned", "uint32_t")
    return not (pointee in _POINTEES and dtype in _POINTEES.values()) or _POINTEES[pointee] == dtype
