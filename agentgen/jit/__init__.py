"""C++ and CUDA C++ source text becomes callables, without torch's headers: 0.05 s a CUDA kernel, 0.3 s a C++ function.

    kernels = jit.cuda(SOURCE, options=("--use_fast_math",))        # NVRTC; on a machine without a GPU it only compiles
    kernels.conv[(gx, gy, gz), (bx, by, bz)](x, w, out, n, 0.5)     # on torch's current stream
    kernels.conv[grid, block, dynamic_shared_bytes](x, w, out, n, 0.5)
    kernels.conv.cooperative[grid, block](x, w, out, n, 0.5)        # all blocks at once, or an error
    kernels.report                                                  # registers, spills and shared memory of each
    lib = jit.cpp(SOURCE)                                           # g++ -O3 -march=native -fopenmp
    lib.conv(x, w, out, n)
    jit.builds()                                                    # all that this process has built

Kernels and functions are defined `extern "C"`. Their parameter lists are read from the source, so that a wrong argument
is an error that names the parameter, and not a crash. A tensor becomes its data pointer: strides and sizes are not
looked at, so pass what is contiguous. Builds are cached by content, also across processes.

Not covered: parameter lists, names or whole kernels that come out of macros (a macro or alias that stands for one type
is understood); two definitions of one name in `#if` branches with different parameters; structs and `half` by value,
references; templates (write an extern "C" kernel that calls one); clusters whose size is not in the source
(`__cluster_dims__` is), TMA descriptors; setting `__constant__` variables from Python; several source files.
NVRTC runs in this process and cannot be timed out.

A kernel can carry this folder along under any name: it imports itself relatively, the standard library and
torch, and nothing else.
"""

from __future__ import annotations

from .cache import builds
from .errors import CompileError
from .gcc import Library, cpp
from .launch import Kernel, Kernels
from .nvrtc import cuda

__all__ = ["CompileError", "Kernel", "Kernels", "Library", "builds", "cpp", "cuda"]
