"""bf16 in Triton's interpreter, which keeps bf16 as uint16 and computes on those integers.

Arithmetic, mathematics, comparisons, reductions, scans, atomic adds and casts widen to fp32, compute there and round to
nearest even, as a GPU does. Operations that only move values keep the bits. Whatever is neither raises instead of
giving a wrong number.

Not covered: `tl.dot_scaled` and padding "nan" (they raise). Python's `print` of a tensor shows its bits. Reductions and
scans that numpy runs add up in fp32 and round once, where compiled code rounds after every addition. Integers beyond
2^53 may round twice on their way to bf16.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# Builder operations that compute with bf16 values: run on fp32 instead.
_COMPUTES = re.compile(
    "create_("
    "f(add|sub|mul|div|rem|neg|ma)|fcmp[OU](LT|GT|LE|GE|EQ|NE)|(precise_|approx_)divf|clampf|(max|min)(num|imum)f|"
    "cos|sin|exp2?|log2?|(precise_|r)?sqrt|erf|floor|ceil|dot|print)"
)
# Builder operations that are right on the bits, and the casts, which all end in `cast_impl`.
_MOVES = re.compile(
    "create_("
    "(masked_)?(load|store)|(tensor_pointer|descriptor|atomic)_store|descriptor_scatter|atomic_cas|"
    "bitcast|select|fabs|reshape|trans|expand_dims|broadcast|(un)?splat|cat|join|split|gather|"
    "fp_ext|fp_trunc|fp_to_[su]i|[su]i_to_fp)"
)


def float32_of(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Widens bf16 bit patterns; exact."""
    return np.asarray(np.asarray(bits).astype(np.uint32) << 16).view(np.float32)


def bfloat16_of(values: npt.NDArray[Any], *, towards_zero: bool = False) -> npt.NDArray[np.uint16]:
    """Rounds numbers of any numpy type once to bf16 bit patterns: to nearest even, or towards zero. NaN stays NaN."""
    values = np.asarray(values)
    bits = np.asarray(values if values.dtype == np.float32 else _rounded_to_odd(values)).view(np.uint32)
    up = 0 if towards_zero else 0x7FFF + ((bits >> 16) & 1)
    not_a_number = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.asarray(np.where(not_a_number, (bits >> 16) | 0x7FC0, (bits + up) >> 16)).astype(np.uint16)


def _rounded_to_odd(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Rounds to fp32 so that a second rounding gives what one would have given: inexact results are cut off and get a
    last bit of 1 (Boldo and Melquiond, "When double rounding is odd", 2005)."""
    wide = values.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        single = np.asarray(wide.astype(np.float32))
    bits = single.view(np.uint32)
    bits = np.where(np.abs(single) > np.abs(wide), bits - 1, bits)  # one step towards zero, from infinity too
    inexact = (single != wide) & ~np.isnan(wide)
    return np.asarray(np.where(inexact, bits | 1, bits)).astype(np.uint32).view(np.float32)


class Bfloat16:
    """Replaces what one loaded `triton.runtime.interpreter` does with bf16. A handle is that module's `TensorHandle`: a
    numpy array and a Triton type; bf16 handles hold uint16."""

    def __init__(self, interpreter: Any, tl: Any) -> None:
        self._interpreter = interpreter
        self._tl = tl

    def install(self) -> None:
        """Patches the builder (elementwise operations, memory, casts), reductions and scans."""
        builder = self._interpreter.InterpreterBuilder
        for name in dir(builder):
            if name.startswith("create_") and not _MOVES.fullmatch(name):
                setattr(builder, name, self._guarded(name, getattr(builder, name)))

        def get_bf16(builder: Any, value: float) -> Any:
            return self._bf16(np.array([value], dtype=np.float64))

        builder.get_bf16 = get_bf16
        builder.cast_impl = self._cast(builder.cast_impl)
        builder.create_fp_to_fp = self._fp_to_fp(builder.create_fp_to_fp)
        builder.create_atomic_rmw = self._atomic_rmw(builder.create_atomic_rmw)
        for name in ("create_tensor_pointer_load", "create_descriptor_load"):
            if hasattr(builder, name):
                setattr(builder, name, self._without_nan_padding(name, getattr(builder, name)))
        reduce, scan = self._interpreter.ReduceOps, self._interpreter.ScanOps
        for owner, name in ((reduce, "sum"), (reduce, "min_max"), (scan, "cumsum"), (scan, "cumprod")):
            setattr(owner, name, self._reduction(getattr(owner, name)))
        for owner, name in ((reduce, "generic_reduce"), (scan, "generic_scan")):
            setattr(owner, name, self._generic(getattr(owner, name)))

    def _is_handle(self, value: Any) -> bool:
        return isinstance(value, self._interpreter.TensorHandle)

    def _holds(self, value: Any) -> bool:
        return self._is_handle(value) and value.dtype.scalar == self._tl.bfloat16

    def _bf16(self, values: npt.NDArray[Any], *, towards_zero: bool = False) -> Any:
        return self._interpreter.TensorHandle(bfloat16_of(values, towards_zero=towards_zero), self._tl.bfloat16)

    def _fp32(self, value: Any) -> Any:
        """Widens a bf16 handle, or those in a list of them; passes on anything else."""
        if isinstance(value, list):
            return [self._fp32(item) for item in value]
        if not self._holds(value):
            return value
        if value.data.dtype != np.uint16:
            raise TypeError(f"a bf16 value of the interpreter holds {value.data.dtype}, not bit patterns")
        return self._interpreter.TensorHandle(float32_of(value.data), self._tl.float32)

    def _guarded(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Runs `original` on fp32 where it is given bf16, or refuses to run it."""

        def call(builder: Any, *args: Any, **kwargs: Any) -> Any:
            handles = [value for value in _flat((*args, *kwargs.values())) if self._is_handle(value)]
            if not any(map(self._holds, handles)):
                return original(builder, *args, **kwargs)
            if not _COMPUTES.fullmatch(name):
                raise NotImplementedError(_refusal(name))
            result = original(builder, *map(self._fp32, args), **{key: self._fp32(kwargs[key]) for key in kwargs})
            # `dot` adds bf16 products to an fp32 accumulator, and stays there.
            if not self._is_handle(result) or not all(map(self._holds, handles)):
                return result
            if result.data.dtype == np.bool_:  # a comparison; the interpreter labels it as its operands
                return self._interpreter.TensorHandle(result.data, self._tl.int1)
            return self._bf16(result.data)

        return call

    def _cast(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def cast_impl(builder: Any, src: Any, dst_type: Any) -> Any:
            target = dst_type.scalar
            if target == self._tl.bfloat16:
                return src if self._holds(src) else self._bf16(src.data)
            if not self._holds(src):
                return original(builder, src, dst_type)
            wide = self._fp32(src)
            return wide if target == self._tl.float32 else original(builder, wide, dst_type)

        return cast_impl

    def _fp_to_fp(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Casts with fp8 on one side, or with a rounding mode."""

        def create_fp_to_fp(builder: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
            if dst_type.scalar == self._tl.bfloat16:
                if src.dtype.scalar.primitive_bitwidth == 8:
                    src = original(builder, src, self._tl.float32, None)
                return self._bf16(src.data, towards_zero=rounding_mode == self._interpreter._ir.ROUNDING_MODE.RTZ)
            return original(builder, self._fp32(src), dst_type, rounding_mode)

        return create_fp_to_fp

    def _atomic_rmw(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Adds one element after the other, because several may have the same address."""

        def create_atomic_rmw(builder: Any, op: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
            if not self._holds(val):
                return original(builder, op, ptr, val, mask, sem, scope)
            if op != self._interpreter._ir.ATOMIC_OP.FADD:
                raise NotImplementedError(_refusal(f"atomic {op}"))
            memory, here = self._interpreter._interpreter, np.ones(1, dtype=np.bool_)
            pointers, allowed, added = np.broadcast_arrays(ptr.data, mask.data, float32_of(val.data))
            before = np.zeros(added.shape, dtype=np.uint16)
            for index in np.argwhere(allowed).tolist():
                element = tuple(index)
                address = np.array([pointers[element]], dtype=np.uint64)
                bits = memory.load(address, here, np.zeros(1, dtype=np.uint16), np.dtype(np.uint16))
                before[element] = bits[0]
                memory.store(address, bfloat16_of(float32_of(bits) + added[element]), here)
            return self._interpreter.TensorHandle(before, self._tl.bfloat16)

        return create_atomic_rmw

    def _without_nan_padding(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """The interpreter would pad with the integer that NaN converts to."""

        def load(builder: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
            nan = self._interpreter._ir.PADDING_OPTION.PAD_NAN
            padding = (*args, *kwargs.values(), getattr(source, "padding", None))
            if source.base.get_element_ty() == self._tl.bfloat16 and nan in padding:
                raise NotImplementedError(_refusal(f'{name} with padding "nan"'))
            return original(builder, source, *args, **kwargs)

        return load

    def _reduction(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Runs numpy's own reduction or scan on fp32."""
        tensor, fp32, bf16 = self._tl.core.tensor, self._tl.float32, self._tl.bfloat16

        def retyped(kind: Any, element: Any) -> Any:
            return kind.with_element_ty(element) if kind.is_block() else element

        def narrowed(result: Any) -> Any:
            if isinstance(result, (list, tuple)):
                return type(result)(map(narrowed, result))
            if result.dtype != fp32:  # the index of a maximum
                return result
            return tensor(self._bf16(result.handle.data), retyped(result.type, bf16))

        def call(operation: Any, operand: Any, **how: Any) -> Any:
            if not self._holds(operand.handle):
                return original(operation, operand, **how)
            return narrowed(original(operation, tensor(self._fp32(operand.handle), retyped(operand.type, fp32)), **how))

        return call

    def _generic(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Has a combine function of the candidate keep bf16, as the compiler would: the interpreter would write an fp32
        result into the array of bit patterns."""

        def call(operation: Any, operands: Sequence[Any]) -> Any:
            if not any(self._holds(operand.handle) for operand in operands):
                return original(operation, operands)
            combine = operation.combine_fn

            def checked(*args: Any) -> Any:
                result = combine.fn(*args)
                for value, operand in zip(result if isinstance(result, tuple) else (result,), operands, strict=True):
                    if self._holds(operand.handle) and getattr(value, "dtype", None) != self._tl.bfloat16:
                        raise TypeError(f"a combine function of bf16 values returned {value!r}, which is not bf16")
                return result

            operation.combine_fn = types.SimpleNamespace(fn=checked)
            return original(operation, operands)

        return call


def _flat(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        else:
            yield value


def _refusal(name: str) -> str:
    return f"Triton's interpreter cannot do {name} on bf16; cast to tl.float32 first"
