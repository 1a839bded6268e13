"""What a kernel has no honest use for: the names, and what to do instead."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agentgen.records.problem import OwnWork


@dataclass(frozen=True)
class Reach:
    """Names that are refused for one reason."""

    names: re.Pattern[str]
    """Matches a whole name or the beginning of one, up to a dot."""
    advice: str
    policies: frozenset[OwnWork] = frozenset(OwnWork)


def _reach(names: str, advice: str, *policies: OwnWork) -> Reach:
    alternatives = "|".join(re.escape(name).replace(r"\*", r"\w*") for name in names.split())
    return Reach(re.compile(rf"(?:{alternatives})(?:\.|$)"), advice, frozenset(policies or OwnWork))


PROCESSES = _reach(
    """subprocess multiprocessing torch.multiprocessing pty os.system os.popen os.fork os.forkpty os.exec* os.spawn*
    os.posix_spawn* os.register_at_fork os.unshare os.setns ptrace""",
    "a kernel works in the one process it is given: compile with agentgen.jit (or load_inline) and compute there",
)
THREADS = _reach(
    "threading _thread concurrent asyncio",
    "the work is done when forward returns: use OpenMP inside a C++ function, or blocks and streams on a GPU",
)
NETWORK = _reach(
    "socket socketserver ssl http urllib.request requests urllib3 httpx aiohttp ftplib smtplib torch.hub",
    "nothing outside can be reached: write all it needs into the file",
)
ENDINGS = _reach(
    "signal atexit os._exit os.kill os.killpg os.dup2 os.closerange",
    "to report a fault raise an exception; the process and its open files are not the kernel's",
)
FRAMES = _reach(
    """sys._getframe sys._current_frames sys._getframemodulename sys.settrace sys.setprofile sys.monitoring __main__
    inspect.stack inspect.currentframe inspect.trace inspect.getouterframes inspect.getinnerframes
    traceback.extract_stack traceback.walk_stack traceback.print_stack traceback.format_stack
    gc.get_objects gc.get_referrers gc.get_referents ctypes.pythonapi ctypes.py_object _ctypes""",
    "what called it and what else lives there is not the kernel's: compute from forward's arguments and own weights",
)
CODE = _reach(
    """importlib.import_module importlib.reload importlib.machinery importlib.util.spec_from_file_location
    importlib.util.module_from_spec importlib.__import__ builtins.exec builtins.eval builtins.compile
    builtins.__import__ runpy code codeop imp pickle cPickle dill cloudpickle marshal shelve types.CodeType
    types.FunctionType""",
    "write imports and Python code out; text that becomes a kernel goes to agentgen.jit or load_inline",
)
PATCH_ADVICE = "imported modules and classes stay as they are: keep what is needed in variables and classes of its own"

DISPATCH = _reach(
    """unittest mock torch.overrides torch.utils._python_dispatch torch._C._*dispatch* torch._C._*Dispatch*
    torch._C._Disable* torch._C.Disable* torch._C._*torch_function* torch._C._ExcludeDispatchKeyGuard
    torch._C._IncludeDispatchKeyGuard""",
    "torch is left as it is: call the kernel and return a plain tensor",
)
LIBRARIES = _reach(
    "ctypes.CDLL ctypes.PyDLL ctypes.cdll ctypes.pydll ctypes.LibraryLoader cffi numpy.ctypeslib",
    "a library hides whose work it is, and own work is strict here: agentgen.jit compiles this file's own source",
    OwnWork.STRICT,
)
REACHES = (PROCESSES, THREADS, NETWORK, ENDINGS, FRAMES, CODE, DISPATCH, LIBRARIES)

BUILTINS = frozenset({"exec", "eval", "compile", "__import__", "__builtins__"})
"""Names of Python's own that go with `CODE`."""

_INNARDS = """__code__ __globals__ __closure__ __builtins__ __subclasses__ f_back f_globals f_locals f_builtins tb_frame
    gi_frame cr_frame ag_frame"""
INNARDS = frozenset(_INNARDS.split())
"""Attributes of functions and frames, of anything but `self`, that go with `FRAMES`."""

HOOKS = frozenset({"__torch_function__", "__torch_dispatch__"})
"""Methods that go with `DISPATCH`: a tensor that computes when it is looked at."""

SETTINGS = re.compile(r"torch\.backends\.|torch\._(?:dynamo|inductor)\.(?:\w+\.)*config\.|triton\.knobs\.")
"""Attributes of modules that are there to be set. The comparison of torch's state around a call is what judges them."""

PROC = re.compile(r"(?<![\w./-])/proc/(?!(?:cpuinfo|meminfo)\b)")
"""A path below /proc, in a string of Python or of C++. What the CPU is may be read."""

JIT = frozenset({"CompileError", "Kernel", "Kernels", "Library", "builds", "cpp", "cuda", "*"})
"""What a candidate may use of `agentgen.jit`."""

_FUNCTIONAL = """conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d linear bilinear
    scaled_dot_product_attention multi_head_attention_forward layer_norm rms_norm group_norm batch_norm instance_norm
    softmax log_softmax cross_entropy nll_loss mse_loss max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d
    avg_pool3d relu gelu silu sigmoid tanh softplus elu leaky_relu hardswish"""
_TENSOR = """matmul mm bmm mv dot addmm addmv baddbmm conv1d conv2d conv3d conv_transpose1d conv_transpose2d
    conv_transpose3d softmax log_softmax layer_norm rms_norm group_norm batch_norm relu sigmoid tanh exp cumsum
    logsumexp rsqrt"""
COMPUTE = frozenset(
    [f"torch.nn.functional.{name}" for name in _FUNCTIONAL.split()]
    + [f"torch.{name}" for name in _TENSOR.split()]
    + ["torch.linalg.matmul", "torch.special.softmax"]
)
"""Functions that always dispatch to an operator that is not free. Not all: the count of dispatches sees the rest."""


def reached(name: str, own_work: OwnWork) -> Reach | None:
    """Returns why a full name is refused under a policy; None where it is not."""
    return next((one for one in REACHES if own_work in one.policies and one.names.match(name)), None)


def into_agentgen(name: str) -> bool:
    """Whether a full name lies in agentgen and is not what `jit` offers."""
    parts = name.split(".")
    if parts[0] != "agentgen" or len(parts) == 1:
        return False
    return parts[1] != "jit" or not JIT.issuperset(parts[2:3])
