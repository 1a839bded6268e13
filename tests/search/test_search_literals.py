from __future__ import annotations

import time

from agentgen.search.literals import literals

IMPORT = "from agentgen import jit\n"


def where(source: str) -> list[tuple[int, ...]]:
    return [literal.lines for literal in literals(source)]


def test_a_literal_in_the_call_and_one_bound_to_a_name() -> None:
    source = (
        IMPORT + 'k = jit.cuda(r"""\nint a;\nint b;\n""", options=())\nSRC = """int c;\nint d;"""\nlib = jit.cpp(SRC)\n'
    )
    first, second = literals(source)
    assert (first.kind, first.first, first.last) == ("cuda", 2, 5)
    assert (first.text, first.lines) == (("", "int a;", "int b;", ""), (2, 3, 4, 5))
    assert (second.kind, second.text, second.lines) == ("cpp", ("int c;", "int d;"), (6, 7))


def test_escapes_and_joined_lines_are_counted_as_python_counts_them() -> None:
    source = IMPORT + 'k = jit.cuda("""\\\nint a; // \\\\n\nasm("x;\\n\\t"\n"y;");""")\n'
    (found,) = literals(source)
    assert found.text == ("int a; // \\n", 'asm("x;', '\t"', '"y;");')
    assert found.lines == (3, 4, 4, 5)
    (joined,) = literals(IMPORT + 'k = jit.cuda("""int a = 1 + \\\n2;\nint b;\\\n\n\\x0aint c;""")\n')
    assert joined.text == ("int a = 1 + 2;", "int b;", "", "int c;")
    assert joined.lines == (0, 4, 6, 6), "the first stands on two lines"
    assert where(IMPORT + 'k = jit.cpp("int a;\\nint b;")\n') == [(2, 2)]


def test_every_way_to_import_and_to_pass() -> None:
    assert where("import agentgen.jit\nk = agentgen.jit.cuda('a')\n") == [(2,)]
    assert where("import agentgen.jit as j\nk = j.cpp(source='a')\n") == [(2,)]
    assert where("from agentgen.jit import cuda as build\nclass M:\n    k = build('a')\n") == [(3,)]
    assert where("import torch\nx = torch.zeros(1).cuda('a')\n") == []


def test_what_is_put_together_is_there_and_not_guessed_at() -> None:
    for text in ("f'int {n};'", "'a' + 'b'", "SRC.replace('a', 'b')", "('a'\n 'b')", "unknown", "text"):
        source = f"{IMPORT}SRC = 'a'\ntext = 'a'\ntext = 'b'\nk = jit.cuda({text})\n"
        assert where(source) == [()], text


def test_a_name_that_is_a_parameter_somewhere_is_not_looked_up() -> None:
    assert where(f"{IMPORT}SRC = 'a'\ndef build(SRC):\n    return jit.cuda(SRC)\n") == [()]


def test_what_is_no_python_has_none() -> None:
    assert literals("def (") == []


def test_long_texts_take_no_long_time() -> None:
    start = time.process_time()
    for mark in ("r", ""):
        (found,) = literals(f'{IMPORT}k = jit.cuda({mark}"""' + "int a;\n" * 20_000 + '""")\n')
        assert found.lines == tuple(range(2, 20_003))
    assert time.process_time() - start < 5, "0.1 s; where it grows with the square of the lines, 20 and more"
