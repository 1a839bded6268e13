"""CUDA C++ through NVRTC: finds the library and CUDA's headers, compiles, and reads what ptxas says of each kernel.

Works without a GPU and without a toolkit: pip's wheels of NVRTC and of CUDA's headers are enough. Not covered:
templates as kernels; several source files; headers of the host beyond the few named in `_HEADERS`. NVRTC runs in this
process and cannot be timed out.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from .cache import cached, record
from .errors import refused
from .launch import Kernels
from .signature import read_signatures

_SHIM = "agentgen_jit.h"
_STD = """#if __has_include(<cuda/std/{0}>)
#include <cuda/std/{0}>
namespace std {{ using namespace ::cuda::std; }}
#endif
"""
_EMPTY = ("stdint.h", "stddef.h", "math.h", "float.h", "limits.h", "stdio.h", "stdlib.h", "assert.h", "string.h")
_HEADERS = {  # NVRTC has no headers of the host: what kernels need of them is built in, in the shim, or CCCL's
    **dict.fromkeys((*_EMPTY, *(f"c{header[:-2]}" for header in _EMPTY)), ""),
    **{name: _STD.format(name) for name in ("cmath", "limits", "type_traits", "utility", "array")},
    "algorithm": _STD.format("__algorithm_"),
    _SHIM: """
using int8_t = signed char; using int16_t = short; using int32_t = int; using int64_t = long long;
using uint8_t = unsigned char; using uint16_t = unsigned short; using uint32_t = unsigned int;
using uint64_t = unsigned long long; using intptr_t = long long; using uintptr_t = unsigned long long;
#define INFINITY __builtin_bit_cast(float, 0x7f800000)
#define NAN __builtin_bit_cast(float, 0x7fc00000)
#define FLT_MAX 3.402823466e+38F
#define FLT_MIN 1.175494351e-38F
#define FLT_EPSILON 1.192092896e-07F
#define INT_MAX   0x7fffffff
#define INT_MIN   (-INT_MAX - 1)
""",
}


def cuda(source: str, options: Sequence[str] = (), arch: str | None = None) -> Kernels:
    """Compiles CUDA C++ to machine code; nothing is loaded before the first launch.

    Args:
        source: Kernels defined `extern "C" __global__`. Functions without a mark are device functions. The headers of
            CUDA and, where found, CCCL (`cuda/std/...`) can be included; int64_t and its like, INFINITY, NAN, FLT_MAX
            are there without an include.
        options: NVRTC's (`--use_fast_math`, `-DN=3`, `--maxrregcount=64`); nvcc's that mean nothing to it are dropped.
        arch: Such as "sm_90a"; by default the current device's own, without a device AGENTGEN_CUDA_ARCH's, or sm_90a.

    Raises:
        CompileError: The compiler refused the source or an option.
        TypeError: A kernel has a parameter that cannot be passed.
        RuntimeError: No NVRTC on this machine.
    """
    options, library, folders = _arguments(options, arch), _find_nvrtc(), _include_folders()
    file, log = cached(
        ["cuda", source, options],
        [library, *folders] if library else [],
        ".cubin",
        lambda scratch: _compile(source, [*options, *(f"-I{folder}" for folder in folders)], library, scratch),
    )
    report: list[dict[str, Any]] = []
    for name, text in re.findall(r"Compiling entry function '(\w+)'(.*?)(?=Compiling entry|\Z)", log, re.DOTALL):
        registers, shared = re.search(r"Used (\d+) registers", text), re.search(r"(\d+) bytes smem", text)
        entry = {"kernel": name, "registers": int(registers[1]) if registers else None}
        entry["spill_bytes"] = sum(map(int, re.findall(r"(\d+) bytes spill", text)))
        report.append({**entry, "shared_bytes": int(shared[1]) if shared else 0})
    kernels = Kernels(read_signatures(source, lambda head: "__global__" in head), file.read_bytes(), report)
    record(report)
    return kernels


def _arguments(options: Sequence[str], arch: str | None) -> list[str]:
    """`options` with what is missing, without those of nvcc that NVRTC refuses although they would change nothing."""
    given = shlex.split(options) if isinstance(options, str) else list(options)
    kept = [o for o in given if not re.match(r"-O\d|--expt-|--extended-lambda|-Xcompiler|-m64", o)]
    own_arch = [option for option in kept if re.match(r"--?(gpu-architecture|arch)\b", option)]
    if arch is None and not own_arch:
        arch = _own_arch() if torch.cuda.is_available() else os.environ.get("AGENTGEN_CUDA_ARCH", "sm_90a")
    if arch is not None:
        kept = [o for o in kept if o not in own_arch] + [f"--gpu-architecture={arch if '_' in arch else 'sm_' + arch}"]
    return kept if any(re.match(r"--?std\b", option) for option in kept) else [*kept, "-std=c++17"]


def _own_arch() -> str:
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def _find_nvrtc() -> str:
    """Path of libnvrtc, of torch's own CUDA version if there are several; "" where there is none."""
    roots = [Path(entry, "nvidia") for entry in sys.path]
    homes = [Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda"), Path("/usr/local/cuda")]
    found = [f for root in roots for f in sorted(root.glob("*/lib/libnvrtc.so.1[2-9]"), reverse=True)]
    found += [f for home in homes for f in sorted(home.glob("lib64/libnvrtc.so.1[2-9]"), reverse=True)]
    wanted = f"so.{torch.version.cuda.split('.')[0]}" if torch.version.cuda else ""
    found.sort(key=lambda file: not file.name.endswith(wanted))
    for name in [*map(str, found), "libnvrtc.so.13", "libnvrtc.so.12"]:
        with contextlib.suppress(OSError):
            ctypes.CDLL(name)
            return name
    return ""


def _include_folders() -> list[str]:
    """Folders of CUDA's headers and CCCL's, pip's packages before the toolkit, triton's copies last."""
    homes = [Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda", "include"), Path("/usr/local/cuda/include")]
    places = [folder for entry in sys.path for folder in sorted(Path(entry, "nvidia").glob("*/include"))] + homes
    places += [Path(entry, "triton/backends/nvidia/include") for entry in sys.path]
    found = [
        f
        for place in places
        for f in (place, place / "cccl")
        if any((f / h).exists() for h in ("cuda_fp16.h", "crt", "cuda/std"))
    ]
    return list(dict.fromkeys(map(str, found)))


def _compile(source: str, options: Sequence[str], library: str, scratch: Path) -> str:
    """Writes the cubin to `scratch`/out and returns the log."""
    if not library:
        raise RuntimeError("libnvrtc not found: pip install nvidia-cuda-nvrtc nvidia-cuda-runtime, or set CUDA_HOME")
    if os.path.isabs(library):
        for builtins in Path(library).parent.glob("libnvrtc-builtins.so.*"):  # NVRTC looks for it by its bare name
            ctypes.CDLL(str(builtins))
    nvrtc = ctypes.CDLL(library)
    fixed = ["-default-device", "-lineinfo", "--ptxas-options=-v", f"--pre-include={_SHIM}"]
    code, log, image = _run(nvrtc, source, [*fixed, *options], "CUBIN")
    if code:
        notes: list[str] = []
        if "ptx input, line" in log:
            virtual = [re.sub(r"(arch\w*=)sm_", r"\1compute_", option) for option in options]
            notes = _ptx_lines(_run(nvrtc, source, [*fixed, *virtual], "PTX")[2].decode(), source, log)
        if "cannot open source file" in log:
            notes = ["NVRTC has CUDA's headers and cuda/std/..., no headers of the host, of torch or of CUTLASS."]
        raise refused("candidate.cu does not compile (NVRTC)", log, notes)
    Path(scratch, "out").write_bytes(image)
    return log


def _run(nvrtc: Any, source: str, options: Sequence[str], output: str) -> tuple[int, str, bytes]:
    """(NVRTC's return code, log, the compiled "CUBIN" or "PTX")."""
    program, names, texts = ctypes.c_void_p(), [*map(str.encode, _HEADERS)], [*map(str.encode, _HEADERS.values())]
    headers = ctypes.c_char_p * len(names)
    nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), b"candidate.cu", len(names), headers(*texts), headers(*names)
    )  # fmt: skip
    code = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*map(str.encode, options)))
    answers: list[bytes] = []
    for what in ("ProgramLog", output):
        size = ctypes.c_size_t()
        getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(max(size.value, 1))
        getattr(nvrtc, f"nvrtcGet{what}")(program, buffer)
        answers.append(buffer.raw)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return code, answers[0].rstrip(b"\0").decode(errors="replace"), answers[1]


def _ptx_lines(ptx: str, source: str, log: str) -> list[str]:
    """Where in `source` the lines of PTX stand that ptxas complained of: an error in inline assembly."""
    lines, notes = ptx.splitlines(), list[str]()
    file = re.search(r'\.file\s+(\d+)\s+"[^"]*candidate\.cu"', ptx)
    for number in dict.fromkeys(map(int, re.findall(r"ptx input, line (\d+)", log))):
        places = re.findall(rf"\.loc\s+{file[1] if file else 1}\s+(\d+)", "\n".join(lines[:number]))
        if places and number <= len(lines):
            shown = "".join(source.splitlines()[int(places[-1]) - 1 :][:1]).strip()
            place = f"`{lines[number - 1].strip()}` is from candidate.cu({places[-1]}): {shown}"
            notes.append(f"PTX line {number} {place}"[:300])
    return notes
