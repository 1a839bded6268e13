"""What a report says with the candidate's source at hand; the rest of it is in `test_search_prompts.py`."""

from __future__ import annotations

from search_factories import TARGET, make_candidate, passed, untimed

from agentgen.records.trial import Outcome, Trial
from agentgen.search.feedback import trial_report

SOURCE = '''from agentgen import jit

lib = jit.cpp("""
extern "C" void f(float* x) {
  x[0] = foo(1);
}
""")


class ModelNew:
    def forward(self, x):
        return x + missing
'''
ERRORS = """candidate.cpp does not compile (g++), 1 error(s):
candidate.cpp:3:10: error: 'foo' was not declared in this scope
    3 |   x[0] = foo(1);
      |          ^~~"""
TRACEBACK = """Traceback (most recent call last):
  File "/anywhere/agentgen/sandbox/guest/serve.py", line 216, in serve
    answer = commands[command](message, fds)
  File "/anywhere/guest/candidate.py", line 12, in forward
    return x + missing
NameError: name 'missing' is not defined
"""


def failed(reason: str, log: str = "") -> Trial:
    """Returns a trial that ended with this reason."""
    trial = untimed(make_candidate("x"), Outcome.BUILD_FAILED)
    return trial.model_copy(update={"reasons": (reason,), "log": log})


def test_a_compilers_errors_are_shown_by_the_lines_of_the_file() -> None:
    assert trial_report(failed(f"CompileError: {ERRORS}"), TARGET, SOURCE) == (
        "- Outcome: BUILD_FAILED\n"
        "- Reason: CompileError: candidate.cpp does not compile (g++), 1 error(s):\n"
        "\n"
        "Errors, by the lines of this candidate's file:\n"
        "\n~~~text\nline 5: error: 'foo' was not declared in this scope\n5 | x[0] = foo(1);\n~~~"
    )


def test_errors_that_are_not_found_stay_as_the_compiler_says_them() -> None:
    report = trial_report(failed(f"CompileError: {ERRORS}"), TARGET, SOURCE.replace('cpp("', 'cpp(f"'))
    assert "From the log:\n\n~~~text\ncandidate.cpp:3:10: error: 'foo' was not declared in this scope\n" in report
    assert "by the lines" not in report


def test_an_exception_is_shown_where_it_left_the_candidate() -> None:
    report = trial_report(
        failed("NameError: name 'missing' is not defined", "warming up\n" + TRACEBACK), TARGET, SOURCE
    )
    assert report == (
        "- Outcome: BUILD_FAILED\n"
        "- Reason: NameError: name 'missing' is not defined\n"
        "\n"
        "Errors, by the lines of this candidate's file:\n"
        "\n~~~text\nline 12: in forward: NameError: name 'missing' is not defined\n12 | return x + missing\n~~~\n"
        "\n"
        "From the log:\n\n~~~text\nwarming up\n~~~"
    )


def test_the_guests_own_frames_are_nobodys_business() -> None:
    elsewhere = TRACEBACK.replace("/guest/candidate.py", "/guest/window.py")
    assert "serve.py" not in trial_report(failed("WrongOutput: a list", elsewhere), TARGET, SOURCE)


def test_what_binds_stands_between_times_and_accuracy() -> None:
    lines = trial_report(passed(make_candidate("x"), 2.0), TARGET, SOURCE).split("\n")
    assert [line.split(":")[0] for line in lines] == [
        "- Outcome",
        "- Time",
        "- Against compile (640.5 us)",
        "- Against eager (900 us)",
        "- Share of the roofline bound reached",
        "- Floor",
        "- Reached",
        "- Binds, by these figures",
        "- Error at workload `main`, values `normal`",
        "- Kernel `addrow_v16`",
    ]
