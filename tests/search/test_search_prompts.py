from __future__ import annotations

import re
from importlib.resources import as_file, files

import pytest
import torch
from search_factories import (
    PROBLEM,
    REFERENCE,
    TARGET,
    accuracy,
    empty_tree,
    make_candidate,
    make_idea,
    make_run,
    passed,
    source_text,
    untimed,
)

from agentgen.records.candidate import Candidate, Language
from agentgen.records.chat import Role
from agentgen.records.idea import Category
from agentgen.records.machine import Target
from agentgen.records.problem import Arithmetic, OwnWork
from agentgen.records.run import Plan, Run
from agentgen.records.score import Score
from agentgen.records.trial import Check, Outcome, Trial
from agentgen.search.facts import CLASS_FLOOR, system_text
from agentgen.search.feedback import trial_report, useful_log
from agentgen.search.history import score_line
from agentgen.search.ideas import ideas_request
from agentgen.search.prompts import render
from agentgen.search.strategies import Growth
from agentgen.search.tree import Node, Tree
from agentgen.search.write import refine_request, repair_request, write_request
from agentgen.verify import draws, numerics

RUN = make_run(Plan(), languages=(Language.CPP, Language.TRITON))
ROOT = Growth(None, 0, 4)


EMPTY = empty_tree(RUN)


def grown_tree() -> tuple[Tree, Node, Node]:
    """An idea on the root that passed in C++ and failed in Triton, an idea on that; returns the C++ node of that, and
    the node that failed."""
    tree = empty_tree(RUN)
    first = make_idea(PROBLEM.root(RUN.arithmetic), "Wider vectors")
    good = make_candidate(source_text("1.3"), first)
    bad = make_candidate(source_text("WRONG_VALUES"), first, Language.TRITON)
    second = make_idea(good.id, "Two rows at once")
    better = Candidate(source=source_text("1.6"), language=Language.CPP, idea=second.id, parent=good.id)
    tree.add_idea(1, first)
    tree.add_idea(2, second)
    nodes = [
        grow(tree, 1, good, passed(good, 1.3)),
        grow(tree, 1, bad, untimed(bad, Outcome.WRONG_VALUES)),
        grow(tree, 2, better, passed(better, 1.6)),
    ]
    return tree, nodes[2], nodes[1]


def grow(tree: Tree, round: int, candidate: Candidate, trial: Trial) -> Node:
    """Adds a candidate with its trial."""
    tree.add_candidate(round, candidate)
    return tree.add_trial(trial)


def prompts(target: Target = TARGET) -> dict[str, str]:
    """Every kind of prompt there is."""
    tree, node, failed = grown_tree()
    next_idea = make_idea(node.candidate.id, "Pack the weights")
    on_node = Growth(node.candidate.id, 0, 2)
    found = {
        "ideas-root": ideas_request(EMPTY, target, ROOT, 1),
        "ideas-candidate": ideas_request(tree, target, on_node, 3),
        "ideas-with-others": ideas_request(tree, target, on_node, 3, "- **Online** (memory access): 2x on softmax"),
        "repair": repair_request(tree, target, failed),
        "write-from-parent": write_request(tree, target, next_idea, Language.CPP, 3, None),
        "write-in-another-language": write_request(tree, target, next_idea, Language.TRITON, 3, None),
        "write-anew": write_request(
            tree, target, next_idea, Language.TRITON, 3, None, failed=(failed.candidate.id,), nth=1
        ),
        "refine-root": refine_request(EMPTY, target, Growth(None, 0, 0), 1),
        "refine-candidate": refine_request(tree, target, Growth(node.candidate.id, 0, 0), 3),
        **{
            f"write-{language.value}": write_request(EMPTY, target, make_idea("x"), language, 1, None)
            for language in Language
        },
    }
    return {name: f"{request.system}\n{request.prompt}" for name, request in found.items()}


@pytest.mark.parametrize("name", sorted(prompts()))
def test_nothing_is_left_unfilled_and_texts_are_put_in_as_they_are(name: str) -> None:
    text = prompts()[name].replace("costs $1", "").replace("$x of {y}", "")
    assert "$" not in text
    assert "None" not in re.sub(r"`None`", "", text)
    assert REFERENCE.replace("costs $1", "").strip() in text


@pytest.mark.parametrize("name", sorted(prompts()))
def test_every_prompt_states_the_rules_and_the_target(name: str) -> None:
    text = prompts()[name]
    for needed in (
        "relative L2 error",
        "2e-6",
        "float64 oracle",
        "strict",
        "counts as cheating",
        "Example 9000",
        "2 cores for this process",
        "20 GB/s",
        "fp32 0.15",
        "PyTorch 2.13.0",
        "rows = 1024, features = 512",
        "| parameter or buffer `shift` | (512) | float32 |",
        "`ragged`: rows = 37, features = 19",
        "the bound is 209.8 us, by memory",
        "eager 900 us; compile 640.5 us",
        "compile, is what you race",
    ):
        assert needed in text, needed


def test_ideas_on_the_root_ask_for_the_form_that_is_parsed() -> None:
    request = ideas_request(EMPTY, TARGET, ROOT, 1)
    assert (request.role, request.target, request.parent) == (Role.IDEAS, "cpu", PROBLEM.root(RUN.arithmetic))
    assert (
        '{"ideas": [{"category": "...", "title": "...", "reasoning": "...", "prerequisites": ["..."], '
        '"predicted_speedup": 1.5}]}' in request.prompt
    )
    assert all(f'"{category.value}"' in request.prompt for category in Category)
    assert all(f"**{category.value}**" in request.prompt for category in Category)
    assert "exactly 4 distinct ideas" in request.prompt
    assert "Nothing yet" in request.prompt


def test_ideas_on_a_candidate_know_its_source_its_line_and_all_outcomes() -> None:
    tree, node, _ = grown_tree()
    prompt = ideas_request(tree, TARGET, Growth(node.candidate.id, 0, 2), 3).prompt
    assert node.candidate.source.strip() in prompt
    assert "Wider vectors (1.30x, 492.7 us) -> Two rows at once (1.60x, 400.3 us)" in prompt
    assert (
        "- **Wider vectors** (memory access; on the reference) [in the line of the kernel above]: "
        "reached 1.30x [1.29, 1.31]; cpp: 1.30x, 492.7 us; "
        "triton: WRONG_VALUES: it ended WRONG_VALUES" in prompt
    )
    assert "- **Two rows at once** (memory access; on the kernel of 'Wider vectors')" in prompt
    assert "Against compile (640.5 us): 1.600x (95% interval 1.584 to 1.616)" in prompt
    assert "Share of the roofline bound reached: 52.4%" in prompt
    assert "Kernel `addrow_v16`: 40 registers, 0 bytes of spills" in prompt


@pytest.mark.parametrize(
    ("language", "needed"),
    [
        (Language.CPP, ("jit.cpp(", "__AVX512F__", "OpenMP", 'extern "C" void')),
        (Language.CUDA, ("jit.cuda(", "k.scale[(n + 255) // 256, 256, 0]", "cp.async", "sm_90a", "cuda_bf16.h")),
        (Language.TRITON, ("Triton 3.7.1", '"tf32x3"', "@triton.autotune", "mask=")),
    ],
)
def test_a_write_request_explains_its_language_and_the_contract(language: Language, needed: tuple[str, ...]) -> None:
    request = write_request(EMPTY, TARGET, make_idea("x", "Wider vectors"), language, 1, None)
    assert (request.role, request.target, request.parent) == (
        Role.WRITE,
        language.value,
        make_idea("x", "Wider vectors").id,
    )
    for text in (
        *needed,
        "**Wider vectors** (memory access)",
        "class ModelNew",
        "prepare(self)",
        "exactly one fenced block",
    ):
        assert text in request.prompt, text


def test_the_workload_that_is_timed_is_called_by_its_name() -> None:
    """Where `main` does not fit the device, its sizes are told nowhere."""
    assert "fast at `main`" in prompts()["write-cpp"]
    found = prompts(TARGET.model_copy(update={"workload": "half rows"}))
    for name in ("write-cpp", "write-from-parent", "refine-root"):
        assert "then fast at `half rows`" in found[name]
    with as_file(files("agentgen.search.prompts")) as folder:
        assert not [file.name for file in folder.rglob("*.md") if "`main`" in file.read_text()]


def test_who_writes_code_is_told_what_an_idea_needs() -> None:
    needs = ("a row fits in 227 KB of shared memory", "x is in registers already")
    idea = make_idea("x").model_copy(update={"prerequisites": needs})
    tree, _, failed = grown_tree()
    told = (
        "Because $x of {y}.\n\nPrerequisites:\n- a row fits in 227 KB of shared memory\n- x is in registers already\n"
    )
    assert told in write_request(EMPTY, TARGET, idea, Language.CPP, 1, None).prompt
    assert "Prerequisites:" not in write_request(EMPTY, TARGET, make_idea("x"), Language.CPP, 1, None).prompt
    again = empty_tree(RUN)
    again.add_idea(1, idea)
    node = grow(again, 1, bad := make_candidate(source_text("CRASHED"), idea), untimed(bad, Outcome.CRASHED))
    assert told in repair_request(again, TARGET, node).prompt
    assert "Prerequisites:" not in repair_request(tree, TARGET, failed).prompt


def test_a_write_request_shows_the_parent_and_the_best_one_in_its_own_language() -> None:
    tree, node, _ = grown_tree()
    idea = make_idea(node.candidate.id)
    first = next(tree.ideas).idea
    own = grow(tree, 2, made := make_candidate(source_text("1.1"), first, Language.TRITON), passed(made, 1.1))
    same, other = (
        write_request(tree, TARGET, idea, language, 3, own).prompt for language in (Language.CPP, Language.TRITON)
    )
    assert node.candidate.source.strip() in same
    assert own.candidate.source.strip() not in same
    assert node.candidate.source.strip() in other
    assert own.candidate.source.strip() in other


def test_a_repair_request_shows_what_went_wrong() -> None:
    tree, _, failed = grown_tree()
    request = repair_request(tree, TARGET, failed)
    assert (request.role, request.target, request.parent) == (Role.REPAIR, "triton", failed.candidate.id)
    assert failed.candidate.source.strip() in request.prompt
    assert "- Outcome: WRONG_VALUES\n- Reason: it ended WRONG_VALUES" in request.prompt


def test_the_system_text_follows_arithmetic_and_own_work() -> None:
    problem = PROBLEM.model_copy(update={"own_work": OwnWork.LIBRARY})
    gpu: Run = RUN.model_copy(update={"device": "cuda:0", "arithmetic": Arithmetic.TF32, "problem": problem})
    text = system_text(gpu)
    assert "moves the oracle by, 1e-3)" in text
    assert "computed in TF32" in text
    assert "cuDNN) are allowed" in text
    assert "A single TF32, FP16 or BF16 product" in system_text(gpu.model_copy(update={"device": "cpu"}))


def test_a_failed_trial_is_reported_in_the_lines_that_matter() -> None:
    candidate = make_candidate("x")
    trial = untimed(candidate, Outcome.WRONG_VALUES).model_copy(
        update={
            "checks": (
                Check(name="inputs unchanged", passed=True, evidence="same bits"),
                Check(name="fresh output", passed=False, evidence="two calls share memory"),
            ),
            "accuracy": (
                accuracy("main", "normal", 1e-7),
                accuracy("ragged", "normal", 3e-2),
                accuracy("ragged", "zeros", None),
            ),
            "log": "warming up\n\nk.cpp:12: error: no member\n",
        }
    )
    assert trial_report(trial) == (
        "- Outcome: WRONG_VALUES\n"
        "- Reason: it ended WRONG_VALUES\n"
        "- Failed check `fresh output`: two calls share memory\n"
        "- Error at workload `ragged`, values `zeros`: relative L2 not finite (gate 2e-06, PyTorch itself 1e-07)\n"
        "- Error at workload `ragged`, values `normal`: relative L2 0.03 (gate 2e-06, PyTorch itself 1e-07); "
        "worst element at 1.5e+04 of its limit\n"
        "- Within the gate: main/normal\n"
        "\n"
        "From the log:\n\n~~~text\nwarming up\nk.cpp:12: error: no member\n~~~"
    )


def test_a_trial_in_one_line() -> None:
    candidate = make_candidate("x")
    assert score_line(None) == "not evaluated"
    assert score_line(Score.of(untimed(candidate))) == "correct, not timed"
    assert score_line(Score.of(passed(candidate, 2.0))) == "2.00x, 320.2 us"


def test_a_long_log_is_cut_to_its_first_error_and_its_last_line() -> None:
    lines = (
        [f"line {i}" for i in range(100)]
        + ["k.cu(3): error: x"]
        + [f"note {i}" for i in range(100)]
        + ["ValueError: y"]
    )
    kept = useful_log("\n".join(lines)).split("\n")
    assert kept[:5] == ["line 96", "line 97", "line 98", "line 99", "k.cu(3): error: x"]
    assert kept[-2:] == ["...", "ValueError: y"]
    assert len(kept) == 32
    assert useful_log("\n".join(lines[:100])).split("\n") == [f"line {i}" for i in range(70, 100)]


def test_templates_are_strict() -> None:
    with pytest.raises(KeyError, match="takes"):
        render("again", prompt="p")
    with pytest.raises(KeyError, match="takes"):
        render("contract", surplus=1)


def test_every_template_is_used() -> None:
    package = files("agentgen.search.prompts")
    stems = {entry.name.removesuffix(".md") for entry in package.iterdir() if entry.name.endswith(".md")}
    by_value = {f"lang-{language.value}" for language in Language}
    by_value |= {f"arithmetic-{arithmetic.value}" for arithmetic in Arithmetic}
    by_value |= {f"own-work-{own.value}" for own in OwnWork} | {"playbook-cpu", "playbook-cuda"}
    literal = {"system", "facts", "contract", "ideas", "write", "repair", "again", "orientation", "refine", "rewrite"}
    literal |= {"repair-idea", "won"}
    assert stems == by_value | literal | {"parent-root", "parent-candidate"}


def test_the_promised_gates_and_families_are_those_of_the_judge() -> None:
    assert {arithmetic: float(floor) for arithmetic, floor in CLASS_FLOOR.items()} == numerics.FLOOR
    text = system_text(RUN)
    told = (
        "standard normal",
        "uniform in",
        "mean 1000",
        "1e-3",
        "64",
        "zeros",
        "ones",
        "{0,1}",
        "constant rows",
        "sparse",
        "sorted",
        "outliers",
        "1e-6 beside 1e4",
        "the other way",
    )
    assert len(told) == len(draws.Family), "say in system.md what was added"
    assert all(family in text for family in told)
    assert f"{numerics.TORCH_FACTOR:.0f} x the error of PyTorch" in text
    assert f"{numerics.ULP_FACTOR:.0f} x what one ulp" in text


def test_the_example_in_the_notes_on_cpp_runs() -> None:
    example = re.search(r"```\n(.*?)```", render("lang-cpp"), re.DOTALL)
    assert example
    x = torch.randn(1000)
    names: dict[str, torch.Tensor] = {"x": x}
    exec(example[1], names)
    assert torch.equal(names["y"], x * 2)
