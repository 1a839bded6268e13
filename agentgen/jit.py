"""C++ and CUDA C++ source text becomes callables, without torch's headers: 0.05 s a CUDA kernel, 0.3 s a C++ function.

    kernels = jit.cuda(SOURCE, options=("--use_fast_math",))        # NVRTC; on a machine without a GPU it only compiles
    kernels.conv[(gx, gy, gz), (bx, by, bz)](x, w, out, n, 0.5)     # on torch's current stream
    kernels.conv[grid, block, dynamic_shared_bytes](x, w, out, n, 0.5)
    lib = jit.cpp(SOURCE)                                           # g++ -O3 -march=native -fopenmp
    lib.conv(x, w, out, n)

Kernels and functions are defined `extern "C"`. Their parameter lists are read from the source, so that a wrong argument
is an error that names the parameter, and not a crash. A tensor becomes its data pointer: strides and sizes are not
looked at, so pass what is contiguous. Builds are cached by content, also across processes.

Not covered: parameter lists, names or whole kernels that come out of macros (a macro or alias that stands for one type
is understood); two definitions of one name in `#if` branches with different parameters; structs and `half` by value,
references; templates (write an extern "C" kernel that calls one); cluster and cooperative launches, TMA descriptors;
setting `__constant__` variables from Python; several source files. NVRTC runs in this process and cannot be timed out.

One file, twice as long as its neighbours, because an exported kernel carries it along: it imports nothing but torch.
Its parts, in order: parameters, the cache, CUDA C++, launching, C++.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import json
import math
import numbers
import operator
import os
import platform
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch

_CACHE_FORMAT = 1  # part of every key: raise it when what is kept changes
_CPP_TIMEOUT_S = 120.0
_CPP_OPTIONS = ("-O3", "-march=native", "-fopenmp", "-std=c++17", "-shared", "-fPIC", "-Wl,-z,defs")
_builds: list[dict[str, Any]] = []


class CompileError(RuntimeError):
    """The compiler refused the source. The message has its first errors, `log` everything it said."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


def builds() -> list[dict[str, Any]]:
    """Everything built in this process so far: {kernel, registers, spill_bytes, shared_bytes}, or {kernel} for C++."""
    return [dict(entry) for entry in _builds]


# ---- parameters: read from the source, and filled from Python --------------------------------------------------------

_TYPES = {  # struct's format letter: its ctype, and the C types it stands for, their words sorted
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
_CODES = {words: code for code, (_, names) in _TYPES.items() for words in names.split(",") if words}
_BITS = {code: 1 if code == "?" else 8 * struct.calcsize(code) for code in _TYPES if code not in "fdP"}
_RANGES = {c: (-(1 << (n - 1)), (1 << (n - 1)) - 1) if c.islower() else (0, (1 << n) - 1) for c, n in _BITS.items()}
_KEYWORDS = frozenset(["bool", "float", "double", "char", "short", "int", "long", "unsigned", "signed"])
_FLOAT_MAX = 3.4028235677973366e38  # from here on a double rounds to infinity as a float
_POINTEES = {
    **dict.fromkeys(("half", "__half", "_Float16"), torch.float16),
    **dict.fromkeys(("__nv_bfloat16", "nv_bfloat16"), torch.bfloat16),
    "float": torch.float32,
    "double": torch.float64,
}
_NESTED = r"\([^()]*(?:\([^()]*(?:\([^()]*\)[^()]*)*\)[^()]*)*\)"  # parentheses, three deep
_NOISE = re.compile(
    r'(?P<keep>extern\s*"C"|\b\d[\w\']*)|//(?:\\\n|[^\n])*|/\*.*?\*/|R"(?P<mark>[^(\s"]*)\(.*?\)(?P=mark)"|'
    r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|^[ \t]*#(?:\\\n|/\*.*?\*/|[^\n])*',
    re.DOTALL | re.MULTILINE,
)
_ATTRIBUTE = re.compile(rf"\b(?:__\w+__|alignas)\s*{_NESTED}|\[\[.*?\]\]", re.DOTALL)  # __launch_bounds__(256), ...
_FUNCTION = re.compile(rf"(?P<before>.*?)\b(?P<name>\w+)\s*(?P<list>{_NESTED})\s*(?:noexcept\s*)?", re.DOTALL)
_QUALIFIER = re.compile(r"\b(?:const|volatile|__restrict__|__restrict|__grid_constant__|struct)\b|\b(?:cuda::)?std::")
_ALIAS = re.compile(
    r"\busing\s+(\w+)\s*=\s*([\w:\s*]+);|\btypedef\s+([\w:\s*]+?)\s*\b(\w+)\s*;|"
    r"^\s*#\s*define\s+(\w+)[ \t]+([\w:*\t ]+?)\s*(?://.*)?$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class _Parameter:
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


@dataclass(frozen=True)
class _Signature:
    name: str
    text: str
    parameters: tuple[_Parameter, ...]
    returns: str
    """struct's format letter, "" for void."""

    def convert(self, values: Sequence[Any], device: str) -> list[Any]:
        """Numbers and addresses in the order of the parameters; raises TypeError naming the parameter."""
        if len(values) != len(self.parameters):
            raise TypeError(f"{self.name} takes {len(self.parameters)} arguments, got {len(values)}: {self.text}")
        result: list[Any] = []
        for parameter, value in zip(self.parameters, values, strict=True):
            try:
                result.append(parameter.convert(value, device))
            except TypeError as error:
                position = f"{self.name}, argument {len(result) + 1} `{parameter.text}`"
                raise TypeError(f"{position}: {error}. Declared: {self.text}") from None
        return result


def _parameter(text: str, aliases: Mapping[str, str]) -> _Parameter:
    """Reads one declaration, such as `const float* __restrict__ x`; raises TypeError for what cannot be passed."""
    shown, plain = " ".join(text.split()), _QUALIFIER.sub(" ", text.split("=")[0])
    is_pointer = "*" in plain or "[" in plain
    words: list[str] = re.findall(r"\w+", re.split(r"[*\[]", plain)[0])
    if "*" not in plain and len(words) > 1 and words[-1] not in _KEYWORDS:
        words.pop()  # the parameter's name
    for _ in range(3):  # an alias of an alias of an alias
        expanded = _QUALIFIER.sub(" ", " ".join(aliases.get(word, word) for word in words))
        is_pointer, words = is_pointer or "*" in expanded, re.findall(r"\w+", expanded)
    kind = " ".join(sorted(word for word in words if word not in ("int", "signed"))) or "int"
    if "&" in plain or "(" in plain or not (is_pointer or (kind in _CODES and "<" not in plain)):
        raise TypeError(
            f"`{shown}` cannot be passed: only numbers (int, int64_t, float, double, bool, ...) and pointers"
        )
    return _Parameter(shown, "P", kind) if is_pointer else _Parameter(shown, _CODES[kind])


def _signature(match: re.Match[str], aliases: Mapping[str, str]) -> _Signature:
    inner = match["list"][1:-1]
    hidden = re.sub(rf"<[^<>]*>|{_NESTED}", lambda nested: nested[0].replace(",", "\0"), inner)
    pieces = [] if inner.strip() in ("", "void") else [piece.replace("\0", ",") for piece in hidden.split(",")]
    text = f"{match['name']}({', '.join(' '.join(piece.split()) for piece in pieces)})"
    returns = " ".join(re.sub(r"\b(?:__global__|extern__C|extern)\b", " ", match["before"]).split())
    try:
        parameters = tuple(_parameter(piece, aliases) for piece in pieces)
        result = "" if returns == "void" else _parameter(f"{returns} result", aliases).code
    except TypeError as error:
        raise TypeError(f"{text}: {error}") from None
    return _Signature(match["name"], text, parameters, result)


def _definitions(text: str) -> Iterator[str]:
    """The text before each function body of C linkage. `text` has no comments, strings and preprocessor lines."""
    scopes, depth, start = [False], 0, 0  # scopes: whether names have C linkage; depth: inside a body
    for match in re.finditer(r"[{};]", text):
        head, start = text[start : match.start()], match.end()
        if depth:
            depth += {"{": 1, "}": -1, ";": 0}[match[0]]
        elif match[0] == "}":
            scopes = scopes[:-1] or [False]
        elif match[0] == "{":
            head = _ATTRIBUTE.sub(" ", head).strip()
            if head == "extern__C" or re.fullmatch(r"(inline\s+)?namespace\b[\s\w:]*", head):
                scopes.append(scopes[-1] or head == "extern__C")
                continue
            depth = 1
            if scopes[-1] or "extern__C" in head:
                yield head


def _signatures(source: str, wanted: Callable[[str], bool]) -> dict[str, _Signature]:
    """By name: the functions of C linkage whose head (all before the body) is `wanted`; raises TypeError."""
    text = _NOISE.sub(lambda m: {"e": " extern__C "}.get(m["keep"][0], m["keep"]) if m["keep"] else " ", source)
    groups = (match.groups(default="") for match in _ALIAS.finditer(source))
    aliases = {new or typedef or macro: (a + b + c).strip() for new, a, b, typedef, macro, c in groups}
    found: dict[str, _Signature] = {}
    for match in filter(None, map(_FUNCTION.fullmatch, filter(wanted, _definitions(text)))):
        signature = _signature(match, aliases)
        if found.setdefault(signature.name, signature) != signature:
            raise TypeError(f"{signature.text} and {found[signature.name].text}: one name may have one definition only")
    return found


# ---- the cache -------------------------------------------------------------------------------------------------------


@functools.cache
def _cache_folder(base: str) -> Path:
    """`base`/agentgen/jit, or a private temporary folder where that cannot be written."""
    folder = Path(os.path.expanduser(base)) / "agentgen" / "jit"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="agentgen-jit-"))
    return folder


def _cached(key: Sequence[Any], tool: Sequence[str], suffix: str, build: Callable[[Path], str]) -> tuple[Path, str]:
    """The built file and the compiler's log: from the cache, or by `build`, which writes `out` into a folder.

    `tool` are the compiler's files; size and time of change stand for its version, so that nothing is run on a hit.
    Without a compiler (`tool` is empty) any version's build will do.
    """
    folder = _cache_folder(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    stamps = [(name, os.stat(name).st_size, os.stat(name).st_mtime_ns) for name in tool if os.path.exists(name)]
    digests = [hashlib.sha256(json.dumps(part).encode()).hexdigest() for part in ([_CACHE_FORMAT, *key], stamps)]
    for file in folder.glob(f"{digests[0]}-{digests[1][:16] if tool else '*'}{suffix}"):
        if file.with_suffix(".log").exists():
            return file, file.with_suffix(".log").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        log = build(Path(scratch))
        file = folder / f"{digests[0]}-{digests[1][:16]}{suffix}"
        Path(scratch, "log").write_text(log, encoding="utf-8")
        os.replace(Path(scratch, "log"), file.with_suffix(".log"))  # first: a file without its log is no hit
        os.replace(Path(scratch, "out"), file)
    return file, log


def _refused(title: str, log: str, notes: Sequence[str] = ()) -> CompileError:
    """The errors of `log`, each with what the compiler shows below it; warnings are left to `.log`."""
    kept: list[str] = []
    keep = False
    for line in log.splitlines():
        if re.search(
            r"\b(error|fatal|warning|note|remark|info)\b[^:]{0,12}:|^Remark|detected in the|undefined reference", line
        ):
            keep = re.search(r"\b(error|fatal)\b[^:]{0,12}:|undefined reference", line) is not None
        if keep and line.strip():
            kept.append(line[:200])
    count = sum(1 for line in kept if re.search(r"\berror\b\s*(#[\w-]+)?\s*:", line))
    shown = kept[:30] + [f"... {len(kept) - 30} more lines in .log"] * (len(kept) > 30) or log.splitlines()[-30:]
    return CompileError("\n".join([f"{title}, {max(count, 1)} error(s):", *shown, *notes[:8]]), log)


# ---- CUDA C++ --------------------------------------------------------------------------------------------------------

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


class Kernels:
    """The extern "C" kernels of one source, as attributes."""

    def __init__(self, signatures: Mapping[str, _Signature], image: bytes, report: list[dict[str, Any]]) -> None:
        self.report = report
        """One {kernel, registers (of a thread), spill_bytes (stores and loads), shared_bytes (static)} per kernel."""
        if "report" in signatures:
            raise TypeError("a kernel cannot be called `report`: the attribute of that name says what ptxas said")
        module, known = _Module(image), {entry["kernel"]: entry for entry in report}
        self._members = {name: Kernel(s, module, known[name]) for name, s in signatures.items() if name in known}

    def __getattr__(self, name: str) -> Kernel:
        return _member(self, name)


def _member(owner: Any, name: str) -> Any:
    members: dict[str, Any] = owner.__dict__.get("_members", {})
    if name in members:
        return members[name]
    there = ", ".join(members) or "none"
    raise AttributeError(f'nothing called `{name}` was built; there are: {there}. Is it defined extern "C"?')


def cuda(source: str, options: Sequence[str] = (), arch: str | None = None) -> Kernels:
    """Compiles CUDA C++ to machine code; nothing is loaded before the first launch.

    Args:
        source: Kernels defined `extern "C" __global__`. Functions without a mark are device functions. The headers of
            CUDA and, where found, CCCL (`cuda/std/...`) can be included; int64_t and its like, INFINITY, NAN, FLT_MAX
            are there without an include.
        options: NVRTC's (`--use_fast_math`, `-DN=3`, `--maxrregcount=64`); nvcc's that mean nothing to it are dropped.
        arch: Such as "sm_90a"; by default the current device's own, or sm_90a without a device.

    Raises:
        CompileError: The compiler refused the source or an option.
        TypeError: A kernel has a parameter that cannot be passed.
        RuntimeError: No NVRTC on this machine.
    """
    options, library, folders = _nvrtc_options(options, arch), _find_nvrtc(), _include_folders()
    file, log = _cached(
        ["cuda", source, options],
        [library, *folders] if library else [],
        ".cubin",
        lambda scratch: _nvrtc(source, [*options, *(f"-I{folder}" for folder in folders)], library, scratch),
    )
    report: list[dict[str, Any]] = []
    for name, text in re.findall(r"Compiling entry function '(\w+)'(.*?)(?=Compiling entry|\Z)", log, re.DOTALL):
        registers, shared = re.search(r"Used (\d+) registers", text), re.search(r"(\d+) bytes smem", text)
        entry = {"kernel": name, "registers": int(registers[1]) if registers else None}
        entry["spill_bytes"] = sum(map(int, re.findall(r"(\d+) bytes spill", text)))
        report.append({**entry, "shared_bytes": int(shared[1]) if shared else 0})
    kernels = Kernels(_signatures(source, lambda head: "__global__" in head), file.read_bytes(), report)
    _builds.extend(report)
    return kernels


def _nvrtc_options(options: Sequence[str], arch: str | None) -> list[str]:
    """`options` with what is missing, without those of nvcc that NVRTC refuses although they would change nothing."""
    given = shlex.split(options) if isinstance(options, str) else list(options)
    kept = [o for o in given if not re.match(r"-O\d|--expt-|--extended-lambda|-Xcompiler|-m64", o)]
    own_arch = [option for option in kept if re.match(r"--?(gpu-architecture|arch)\b", option)]
    if arch is None and not own_arch:
        major, minor = torch.cuda.get_device_capability() if torch.cuda.is_available() else (9, 0)
        arch = f"sm_{major}{minor}{'a' if major >= 9 else ''}"
    if arch is not None:
        kept = [o for o in kept if o not in own_arch] + [f"--gpu-architecture={arch if '_' in arch else 'sm_' + arch}"]
    return kept if any(re.match(r"--?std\b", option) for option in kept) else [*kept, "-std=c++17"]


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


def _nvrtc(source: str, options: Sequence[str], library: str, scratch: Path) -> str:
    """Writes the cubin to `scratch`/out and returns the log."""
    if not library:
        raise RuntimeError("libnvrtc not found: pip install nvidia-cuda-nvrtc nvidia-cuda-runtime, or set CUDA_HOME")
    if os.path.isabs(library):
        for builtins in Path(library).parent.glob("libnvrtc-builtins.so.*"):  # NVRTC looks for it by its bare name
            ctypes.CDLL(str(builtins))
    nvrtc = ctypes.CDLL(library)
    fixed = ["-default-device", "-lineinfo", "--ptxas-options=-v", f"--pre-include={_SHIM}"]
    code, log, image = _nvrtc_run(nvrtc, source, [*fixed, *options], "CUBIN")
    if code:
        notes: list[str] = []
        if "ptx input, line" in log:
            virtual = [re.sub(r"(arch\w*=)sm_", r"\1compute_", option) for option in options]
            notes = _ptx_lines(_nvrtc_run(nvrtc, source, [*fixed, *virtual], "PTX")[2].decode(), source, log)
        if "cannot open source file" in log:
            notes = ["NVRTC has CUDA's headers and cuda/std/..., no headers of the host, of torch or of CUTLASS."]
        raise _refused("candidate.cu does not compile (NVRTC)", log, notes)
    Path(scratch, "out").write_bytes(image)
    return log


def _nvrtc_run(nvrtc: Any, source: str, options: Sequence[str], output: str) -> tuple[int, str, bytes]:
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


# ---- launching -------------------------------------------------------------------------------------------------------


class Kernel:
    """One kernel: `kernel[grid, block, dynamic_shared_bytes](*arguments)`; what is in [] may be kept and used again."""

    def __init__(self, signature: _Signature, module: _Module, report: Mapping[str, Any]) -> None:
        self._signature, self._module, self._report = signature, module, report
        codes = "".join(parameter.code for parameter in signature.parameters)
        self._packer = struct.Struct("@" + codes)  # lays numbers out and aligns them as C does
        self._offsets = [struct.calcsize("@" + codes[: i + 1]) - struct.calcsize(c) for i, c in enumerate(codes)]
        self._pointers = ctypes.c_void_p * len(codes)

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
            _check(driver, driver.cuLaunchKernel(function, *shape, shared, stream, pointers, None))
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
        if re.search("ILLEGAL|LAUNCH_FAILED|MISALIGNED|ASSERT", error):
            parts.append("an earlier kernel may be at fault: CUDA_LAUNCH_BLOCKING=1 shows which")
        return "; ".join(parts)


def _three(kernel: str, what: str, value: Any) -> tuple[int, int, int]:
    sizes: tuple[Any, ...] = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(sizes) <= 3 or not all(hasattr(size, "__index__") and 0 < size < 1 << 31 for size in sizes):
        raise ValueError(f"{kernel}: {what}={value!r:.60} must be one to three integers above 0 (divide with //)")
    x, y, z = (*map(operator.index, sizes), 1, 1)[:3]
    return x, y, z


class _Module:
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
    driver.cuLaunchKernel.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]
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


# ---- C++ -------------------------------------------------------------------------------------------------------------


class Library:
    """The extern "C" functions of one C++ source, as attributes."""

    def __init__(self, signatures: Mapping[str, _Signature], file: Path) -> None:
        library = ctypes.CDLL(str(file))
        self._members = {n: _function(library, s) for n, s in signatures.items() if hasattr(library, n)}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return _member(self, name)


def _function(library: ctypes.CDLL, signature: _Signature) -> Callable[..., Any]:
    native = library[signature.name]
    native.argtypes = [_TYPES[parameter.code][0] for parameter in signature.parameters]
    native.restype = _TYPES[signature.returns][0] if signature.returns else None

    def call(*values: Any) -> Any:
        return native(*signature.convert(values, "cpu"))

    call.__name__, call.__doc__ = signature.name, signature.text
    return call


def cpp(source: str, options: Sequence[str] = ()) -> Library:
    """Compiles C++17 for this machine's processor; OpenMP is on. Calls release the GIL.

    Raises:
        CompileError: The compiler refused the source or an option, or took longer than two minutes.
        TypeError: A function has a parameter or result that cannot be passed.
        RuntimeError: No C++ compiler on this machine.
    """
    flags = [*_CPP_OPTIONS, *(shlex.split(options) if isinstance(options, str) else options)]
    found = shutil.which("g++") or shutil.which("c++")
    compiler = os.path.realpath(found) if found else ""
    file, _ = _cached(
        ["cpp", source, flags, _processor()], [compiler] if compiler else [], ".so",
        lambda scratch: _gcc(source, flags, compiler, scratch),
    )  # fmt: skip
    signatures = _signatures(source, lambda head: not re.search(r"\b(static|inline|template)\b", head))
    library = Library(signatures, file)
    _builds.extend({"kernel": name} for name in signatures)
    return library


def _gcc(source: str, flags: Sequence[str], compiler: str, scratch: Path) -> str:
    """Writes the shared library to `scratch`/out and returns the log."""
    if not compiler:
        raise RuntimeError("no C++ compiler: install g++ (apt-get install g++) and have it on the PATH")
    (scratch / "candidate.cpp").write_text(source, encoding="utf-8")
    command = [compiler, "-fdiagnostics-color=never", "-fmax-errors=5", "candidate.cpp", *flags, "-o", "out"]
    environment = {**os.environ, "LC_ALL": "C"}  # plain quotes and English, whatever the locale
    process = subprocess.Popen(
        command, cwd=scratch, env=environment, encoding="utf-8", errors="replace", stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        log, _ = process.communicate(timeout=_CPP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the driver's children too
        raise CompileError(
            f"candidate.cpp: g++ was stopped after {_CPP_TIMEOUT_S:.0f} s", process.communicate()[0]
        ) from None
    if process.returncode:
        raise _refused("candidate.cpp does not compile (g++)", log)
    return log


@functools.cache
def _processor() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "".join(sorted({line for line in lines if re.match("model name|flags|Features|CPU part", line)}))
