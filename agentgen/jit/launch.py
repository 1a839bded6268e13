"""Launching: a cubin's kernels as attributes, `kernels.name[grid, block, dynamic_shared_bytes](*arguments)`.

Through the driver's API, on torch's current stream and in torch's context, so that launches can be captured in graphs.
Nothing is loaded before the first launch. Not covered: clusters whose size is not in the source (`__cluster_dims__`
is), TMA descriptors, setting `__constant__` variables.
"""

from __future__ import annotations

import copy
import ctypes
import functools
import math
import operator
import re
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch

from .errors import unknown
from .signature import Signature


class Kernels:
    """The extern "C" kernels of one source, as attributes."""

    def __init__(self, signatures: Mapping[str, Signature], image: bytes, report: list[dict[str, Any]]) -> None:
        self.report = report
        """One {kernel, registers (of a thread), spill_bytes (stores and loads), shared_bytes (static)} per kernel."""
        if "report" in signatures:
            raise TypeError("a kernel cannot be called `report`: the attribute of that name says what ptxas said")
        module, known = Module(image), {entry["kernel"]: entry for entry in report}
        self._members = {name: Kernel(s, module, known[name]) for name, s in signatures.items() if name in known}

    def __getattr__(self, name: str) -> Kernel:
        members = vars(self).get("_members", {})  # none yet in an object that is being copied
        if name not in members:
            raise unknown(name, members)
        return members[name]


class Kernel:
    """One kernel: `kernel[grid, block, dynamic_shared_bytes](*arguments)`; what is in [] may be kept and used again."""

    def __init__(self, signature: Signature, module: Module, report: Mapping[str, Any]) -> None:
        self._signature, self._module, self._report = signature, module, report
        codes = "".join(parameter.code for parameter in signature.parameters)
        self._packer = struct.Struct("@" + codes)  # lays numbers out and aligns them as C does
        self._offsets = [struct.calcsize("@" + codes[: i + 1]) - struct.calcsize(c) for i, c in enumerate(codes)]
        self._pointers = ctypes.c_void_p * len(codes)
        self._entry = "cuLaunchKernel"

    @property
    def cooperative(self) -> Kernel:
        """This kernel for launches whose blocks all run at once, so that they may wait for each other; a grid that does
        not fit the device is refused. For a barrier, blocks count up a counter in global memory."""
        other = copy.copy(self)
        other._entry = "cuLaunchCooperativeKernel"
        return other

    def __repr__(self) -> str:
        return f"<CUDA kernel {self._signature.text}>"

    def __call__(self, *_: Any) -> NoReturn:
        raise TypeError(f"say grid and block: kernels.{self._signature.name}[grid, block](...)")

    def __getitem__(self, launch: Any) -> Callable[..., None]:
        name = self._signature.name
        if not isinstance(launch, tuple) or len(launch) not in (2, 3):
            raise TypeError(f"kernels.{name}[grid, block] or [grid, block, dynamic_shared_bytes], got [{launch!r}]")
        shape = (*_three(name, "grid", launch[0]), *_three(name, "block", launch[1]))
        shared: Any = launch[2] if len(launch) == 3 else 0
        if not isinstance(shared, int) or shared < 0:
            raise ValueError(f"{name}: dynamic_shared_bytes={shared!r:.60} must be an integer of bytes")
        return functools.partial(self._launch, shape, shared)

    def _launch(self, shape: tuple[int, ...], shared: int, *arguments: Any) -> None:
        driver = _driver()
        values = self._signature.convert(arguments, "cuda")
        devices = {argument.get_device() for argument in arguments if isinstance(argument, torch.Tensor)}
        if len(devices) > 1:
            raise TypeError(f"{self._signature.name}: tensors on several devices: {sorted(devices)}")
        current = torch.cuda.current_device()
        device = devices.pop() if devices else current
        if device != current:
            with torch.cuda.device(device):
                return self._enqueue(driver, device, shape, shared, values)
        return self._enqueue(driver, device, shape, shared, values)

    def _enqueue(self, driver: Any, device: int, shape: tuple[int, ...], shared: int, values: list[Any]) -> None:
        _enter_context(driver, device)
        buffer = ctypes.create_string_buffer(self._packer.pack(*values), self._packer.size or 1)
        address = ctypes.addressof(buffer)
        pointers = self._pointers(*[address + offset for offset in self._offsets])
        static = self._report["shared_bytes"]
        try:
            function = self._module.function(driver, device, self._signature.name, shared, static)
            stream = torch._C._cuda_getCurrentRawStream(device)  # pyright: ignore[reportPrivateUsage]
            more = [] if "Cooperative" in self._entry else [None]
            _check(driver, getattr(driver, self._entry)(function, *shape, shared, stream, pointers, *more))
        except RuntimeError as error:
            raise RuntimeError(self._explain(str(error), device, shape, shared)) from None

    def _explain(self, error: str, device: int, shape: tuple[int, ...], shared: int) -> str:
        threads, registers, static = math.prod(shape[3:]), self._report["registers"] or 0, self._report["shared_bytes"]
        launch = f"grid={shape[:3]} block={shape[3:]} dynamic shared bytes={shared} static shared bytes={static}"
        parts = [f"{self._signature.name}: {error}", f"{launch} registers={registers}"]
        if threads > 1024:
            parts.append(f"a block may have 1024 threads, not {threads}")
        elif threads * registers > 65536:
            parts.append(f"{threads} threads x {registers} registers exceed 65536: use __launch_bounds__({threads})")
        if shared > 48 * 1024 - static:
            limit = torch.cuda.get_device_properties(device).shared_memory_per_block_optin
            parts.append(f"a block may use {limit} bytes of shared memory, this one wants {shared + static}")
        if "COOPERATIVE" in error:
            room = torch.cuda.get_device_properties(device).multi_processor_count
            parts.append(f"all {math.prod(shape[:3])} blocks must fit at once on {room} multiprocessors")
        if re.search("ILLEGAL|LAUNCH_FAILED|MISALIGNED|ASSERT", error):
            parts.append("an earlier kernel may be at fault: CUDA_LAUNCH_BLOCKING=1 shows which")
        return "; ".join(parts)


def _three(kernel: str, what: str, value: Any) -> tuple[int, int, int]:
    sizes: tuple[Any, ...] = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(sizes) <= 3 or not all(hasattr(size, "__index__") and 0 < size < 1 << 31 for size in sizes):
        raise ValueError(f"{kernel}: {what}={value!r:.60} must be one to three integers above 0 (divide with //)")
    x, y, z = (*map(operator.index, sizes), 1, 1)[:3]
    return x, y, z


class Module:
    """A cubin, loaded once into each device's context. Never unloaded: a queued kernel may still need it."""

    def __init__(self, image: bytes) -> None:
        self._image, self._lock = image, threading.Lock()
        self._modules: dict[int, ctypes.c_void_p] = {}
        self._functions: dict[tuple[int, str], tuple[ctypes.c_void_p, int]] = {}

    def function(self, driver: Any, device: int, name: str, dynamic: int, static: int) -> ctypes.c_void_p:
        """The kernel's handle on `device`, allowed to use that many bytes of shared memory."""
        known = self._functions.get((device, name))
        if known is not None and dynamic <= known[1]:
            return known[0]
        with self._lock:
            _, granted = self._functions.get((device, name), (None, 48 * 1024 - static))
            if device not in self._modules:
                module = ctypes.c_void_p()
                _check(driver, driver.cuModuleLoadData(ctypes.byref(module), self._image))
                self._modules[device] = module
            function = ctypes.c_void_p()
            _check(driver, driver.cuModuleGetFunction(ctypes.byref(function), self._modules[device], name.encode()))
            if dynamic > granted:
                _check(driver, driver.cuFuncSetAttribute(function, 8, dynamic))  # MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._functions[device, name] = function, max(granted, dynamic)
            return function


@functools.cache
def _driver() -> Any:
    if not torch.cuda.is_available():
        raise RuntimeError("no CUDA device: compiled only")
    torch.cuda.init()
    driver = ctypes.CDLL("libcuda.so.1")
    kinds = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 2]
    driver.cuLaunchKernel.argtypes, driver.cuLaunchCooperativeKernel.argtypes = [*kinds, ctypes.c_void_p], kinds
    return driver


def _enter_context(driver: Any, device: int) -> None:
    """Makes torch's context current where none is: in a thread that has not used CUDA yet."""
    context = ctypes.c_void_p()
    _check(driver, driver.cuCtxGetCurrent(ctypes.byref(context)))
    if not context.value:
        _check(driver, driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        _check(driver, driver.cuCtxSetCurrent(context))


def _check(driver: Any, code: int) -> None:
    if code:
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        driver.cuGetErrorName(code, ctypes.byref(name))
        driver.cuGetErrorString(code, ctypes.byref(text))
        raise RuntimeError(f"{(name.value or b'').decode()} ({code}): {(text.value or b'').decode()}")
