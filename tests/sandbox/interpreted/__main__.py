"""Runs kernels under Triton's interpreter and checks them against torch. A program of its own, because the interpreter
is chosen when triton is imported: `TRITON_INTERPRET=1 python interpreted` prints {check: what went wrong or null}."""

from __future__ import annotations

import json
import sys
import traceback

import arithmetic
import programs

from agentgen.sandbox.guest import interpreter


def main() -> None:
    """Runs every function whose name begins with check_."""
    interpreter.install()
    interpreter.install()  # a second time changes nothing
    report: dict[str, str | None] = {}
    for name, check in {**vars(programs), **vars(arithmetic)}.items():
        if name.startswith("check_"):
            try:
                check()
                report[name] = None
            except Exception:  # noqa: BLE001  told to the test that waits for it
                report[name] = traceback.format_exc()
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
