"""The site of the leaderboard, as text: what its pages say, what they are called, and that nothing hostile gets out."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from entry_records import MACHINE, entry, problem
from site_records import NEWER, SOURCE, files, kept, leaderboard, rich

from agentgen.records.entry import Entry
from agentgen.records.problem import Arithmetic
from agentgen.report.site.matrix import matrix
from agentgen.report.site.site import render
from agentgen.report.standings import boards

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 7 }}\x1b[31m\u202egnp.exe\u2066\u3164"


class Elements(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    @property
    def links(self) -> list[str]:
        return [value for _, given in self.found for name in ("src", "href") if (value := given.get(name))]


def hostile() -> Entry:
    """Returns an entry of which every text that anybody may write is hostile."""
    made = rich(
        f"{HOSTILE}\n" + "x" * 1_000_000,
        model=HOSTILE,
        title=HOSTILE,
        of=problem("..", f"{HOSTILE}\n"),
        machine=MACHINE.model_copy(update={"device": f"../../{HOSTILE}", "driver": HOSTILE}),
    )
    trial = made.trial
    checks = tuple(one.model_copy(update={"name": HOSTILE, "evidence": HOSTILE * 1000}) for one in trial.checks)
    build = tuple(one.model_copy(update={"kernel": HOSTILE}) for one in trial.build)
    near = tuple(one.model_copy(update={"workload": HOSTILE}) for one in trial.neighbours)
    raced = tuple(one.model_copy(update={"baseline": HOSTILE}) for one in trial.speedups)
    update = {"checks": checks, "build": build, "neighbours": near, "speedups": raced}
    origin = made.origin.model_copy(update={"run": HOSTILE, "commit": HOSTILE, "agentgen": HOSTILE})
    asked = made.problem.model_copy(update={"title": HOSTILE})
    return made.model_copy(update={"trial": trial.model_copy(update=update), "origin": origin, "problem": asked})


def page_of(one: Entry) -> str:
    (found,) = (text for name, text in files(*kept(one)).items() if name.startswith("kernels/") and ".html" in name)
    return found.decode()


def shown(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page.partition("</style>")[2].partition('<script id="data"')[0]).split())


def test_every_link_leads_to_a_file_of_the_site() -> None:
    made = files(*leaderboard())
    assert len([name for name in made if name.endswith(".html")]) == 7
    for name, content in made.items():
        if name.endswith(".html"):
            for link in Elements(content).links:
                if not link.startswith("#"):
                    assert (Path("/") / name).parent.joinpath(unquote(link)).resolve().as_posix()[1:] in made, link


def test_hostile_words_make_no_element_no_file_elsewhere_and_stay_visible() -> None:
    made = files(*kept(hostile()))
    for name, content in made.items():
        assert re.fullmatch(r"index\.html|kernels/[a-z0-9-]+\.(html|py)", name)
        if name.endswith(".html"):
            elements = Elements(content)
            tags = [tag for tag, _ in elements.found]
            assert tags.count("script") == (2 if "kernels" in name else 1)
            assert "img" not in tags
            assert not [key for _, given in elements.found for key in given if key.startswith("on")]
            text = content.decode()
            assert "{{ 7 * 7 }}" in text
            assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\u3164]", text)
            assert len(content) < 400_000
    (source,) = (content for name, content in made.items() if name.endswith(".py"))
    assert source.decode() == hostile().candidate.source


def test_a_page_says_all_that_its_entry_holds() -> None:
    words = shown(page_of(rich()))
    for wanted in (
        "Keep the filter in shared memory",
        "Stage each band once as zero-padded FP16",
        "CRASHED · by gpt-oss-120b illegal memory access",
        "1.50× over the step before",
        "certified since then, by a judge of its own: 10.10× [10.00, 10.20]",
        "torch.compile max-autotune 10.10× [10.00, 10.20]",
        "roofline bound 12.67 µs",
        "odd sizes 0.13× [0.12, 0.14]",
        "values: main ok 14 families of 100 draws",
        "racecheck saw 0 hazards",
        "agentgen reverify results/kernels/relu/fp32/nvidia-h200/",
        "20261122-200601-f345, begun 2026-11-22 20:30",
        "0.1.0, commit cf8b8c1",
        "NVIDIA H200, compute capability 9.0, driver 580.159.04",
        "accuracy class fp32",
    ):
        assert wanted in words, wanted


def test_a_source_travels_untouched_for_those_who_copy_it() -> None:
    source = f"{HOSTILE}\r\n<!--"
    page = page_of(entry(source))
    data = page.partition('<script id="data" type="application/json">')[2].partition("</script>")[0]
    assert json.loads(data)["kernel"] == source


def test_entries_of_names_that_look_alike_have_pages_of_their_own() -> None:
    made = files(*kept(*(entry(of=problem(name)) for name in ("Relu", "relu", "re.lu", "re_lu"))))
    assert len(made) == 1 + 2 * 4


def test_a_cell_is_the_best_entry_of_its_board_and_machines_are_apart() -> None:
    found = matrix(boards(leaderboard()), {one.folder: one.entry.id for one in leaderboard()})
    assert [device for device, _ in found.machines] == ["AMD EPYC", "NVIDIA H200", "NVIDIA H200"]
    assert [text.rpartition("torch ")[2] for _, text in found.machines] == [
        "2.11.0",
        "2.11.0, triton 3.6.0",
        "2.12.0, triton 3.6.0",
    ]
    cells = {
        row.problem: [(cell.share, cell.speedup, cell.entries, cell.shade) if cell else None for cell in row.cells]
        for row in found.rows
    }
    assert cells == {
        "conv2d_relu_maxpool": [None, ("81%", "16.00×", 1, 8), None],
        "relu": [("146%", "1.90×", 1, 10), ("64%", "10.10×", 2, 6), ("–", "7.00×", 1, None)],
        "softmax": [None, ("5%", "1.25×", 1, 0), None],
    }


def test_arithmetics_of_a_problem_are_rows_of_it() -> None:
    one, other = rich(), rich(SOURCE + "# in half\n")
    trial = other.trial.model_copy(update={"arithmetic": Arithmetic.FP16})
    both = kept(one, other.model_copy(update={"trial": trial}))
    rows = matrix(boards(both), {each.folder: "" for each in both}).rows
    assert [(row.problem, row.arithmetic, row.span) for row in rows] == [("relu", "fp16", 2), ("relu", "fp32", 0)]


def test_boards_have_ranks_words_and_what_differs_within_them() -> None:
    driver = MACHINE.model_copy(update={"driver": "590.1"})
    index = shown(
        files(*kept(rich(), rich("b", 10.0, machine=driver), rich("c", 2.0, machine=NEWER)))["index.html"].decode()
    )
    assert index.count("1= ") == 2
    assert "certified under 580.159.04 and 590.1 (driver): not told apart here" in index
    assert "relu in fp32 on NVIDIA H200 (132 multiprocessors, torch 2.12.0, triton 3.6.0)" in index
    assert "2.00× [1.98, 2.02]" in index


def test_a_leaderboard_without_entries_says_so() -> None:
    made = render((), (), ("judge.json: no fast_p",), ("entry.json: Invalid JSON",))
    assert set(made) == {"index.html"}
    words = shown(made["index.html"].decode())
    for wanted in ("No entries yet", "No saved report has one", "judge.json: no fast_p", "entry.json: Invalid JSON"):
        assert wanted in words


@pytest.mark.parametrize("page", ["index.html", "kernels/"])
def test_nothing_is_loaded_and_only_our_script_runs(page: str) -> None:
    made = files(*leaderboard())
    text = next(content for name, content in made.items() if name.startswith(page) and name.endswith(".html"))
    found = Elements(text).found
    policy = next(given["content"] for _, given in found if given.get("http-equiv") == "Content-Security-Policy")
    assert policy
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert not [tag for tag, given in found if given.get("style")]
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", text.decode())
