"""The search: rounds of ideas -> candidates -> trials -> repairs, each round growing from the best of all before it.

1. Choose parents: the reference in round 1, later the best candidates so far (`select`). A candidate is asked for ideas
   in one round only. Where its branch ends (nothing recorded, no usable answer), the next best takes its place.
2. Ask for ideas on each parent; write each idea in each language of the run.
3. Evaluate; send what failed back to the model, `plan.repairs` times at most.

Derived from the store: every step is committed before the next begins, and `run_search` walks through all rounds from
the first, skipping what is stored. So a killed, stopped or waiting run goes on by calling it again. A round chooses its
parents when all work of the rounds before is settled, and sees only what those made.

A cap of the run (`caps`) stops the asking, nothing else: what is written is evaluated, then the run is STOPPED. It is
not DONE, for its plan is not, and a higher cap lets it go on where it was.

Waiting stops nothing else: while answers are pending or the device is away, everything that needs neither is done.

Not covered: asking and evaluating at the same time; two processes on one run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from agentgen.errors import DeviceNotFound, StoreUnavailable
from agentgen.models.chat import ChatModel
from agentgen.records import events
from agentgen.records.candidate import Candidate
from agentgen.records.idea import Idea
from agentgen.records.machine import Target
from agentgen.records.run import Capped, Run, RunStatus
from agentgen.records.trial import Outcome, Trial
from agentgen.search.ask import Asker, Missing
from agentgen.search.caps import Budget
from agentgen.search.ideas import ideas_request
from agentgen.search.replies import parse_ideas, parse_source
from agentgen.search.select import next_parent
from agentgen.search.tree import Node, Tree
from agentgen.search.write import first_candidate, repair_request, repaired_candidate, write_request
from agentgen.store.ledger import Ledger


class Judge(Protocol):
    """Evaluates candidates of one problem on one device, or on several of one kind."""

    def target(self) -> Target:
        """Returns what is known of the problem on this device; starts the device if needed.

        Raises:
            MachineFailure: among them DeviceNotFound when the run's device is not on this machine.
        """
        ...

    def evaluate_all(self, candidates: Sequence[Candidate], on_stage: Callable[[str, str], None]) -> Iterator[Trial]:
        """Yields what was found, as it is found, in any order. A failing candidate is a trial, never an exception.

        Args:
            candidates: what to evaluate, each once.
            on_stage: told candidate (by its id) and stage as a stage begins, in this thread.

        Raises:
            MachineFailure: as for `target`; what was begun before has been yielded.
        """
        ...


@dataclass(frozen=True)
class SearchResult:
    """Where a search stands when it returns."""

    status: RunStatus
    answers: int = 0
    """Model answers that are waited for."""
    evaluations: int = 0
    """Candidates that wait for their device."""
    capped: Capped | None = None
    """Why models were asked no further, if a cap is why."""


def run_search(
    run: Run,
    ledger: Ledger,
    models: Sequence[ChatModel],
    judge: Judge,
    watch: Callable[[events.Event], None],
    elapsed_s: Callable[[], float] | None = None,
) -> SearchResult:
    """Searches until the plan is done, no branch is left, a cap stops it, or nothing can advance; resumes what is
    stored of `run`.

    Args:
        run: as the ledger holds it.
        ledger: where everything is kept.
        models: at least one; they share the requests.
        judge: evaluates on the run's device.
        watch: told what happens, for a display.
        elapsed_s: returns the seconds that count for the cap on minutes; None: those since this call.

    Raises:
        ModelUnavailable: a model gave up; the run is STOPPED and can be resumed.
        MachineFailure: the machine failed, or the device is away and was never looked at; STOPPED.
        KeyboardInterrupt: by the user; STOPPED.
    """
    start_s = time.monotonic()
    ledger.set_status(run.id, RunStatus.OPEN)
    try:
        budget = Budget(run, ledger, models, elapsed_s or (lambda: time.monotonic() - start_s))
        result = _Search(run, ledger, models, budget, judge, watch).advance()
        ledger.set_status(run.id, result.status)
    except BaseException:
        with suppress(StoreUnavailable):
            ledger.set_status(run.id, RunStatus.STOPPED)
        watch(events.RunEnded(RunStatus.STOPPED))
        raise
    if result.status is RunStatus.WAITING:
        watch(events.RunWaiting(result.answers, result.evaluations))
    watch(events.RunEnded(result.status))
    return result


def evaluate_pending(run: Run, ledger: Ledger, judge: Judge, watch: Callable[[events.Event], None]) -> int:
    """Evaluates the candidates of `run` that have no trial, asks no model, and returns how many they were.

    Raises:
        MachineFailure: the machine failed, or has not the run's device.
    """
    try:
        if run.target is None:
            ledger.set_target(run.id, judge.target())
        known = {trial.candidate for trial in ledger.trials(run.id)}
        pending = [row for row in ledger.candidates(run.id) if row.candidate.id not in known]
        for row in pending:
            watch(events.CandidateWritten(row.round, row.candidate))
        rounds = {row.candidate.id: row.round for row in pending}
        for trial in _evaluated(judge, [row.candidate for row in pending], watch):
            ledger.add_trial(run.id, trial)
            watch(events.TrialDone(rounds[trial.candidate], trial))
    except BaseException:
        watch(events.RunEnded(RunStatus.STOPPED))
        raise
    watch(events.RunEnded(RunStatus.WAITING))
    return len(pending)


def _evaluated(judge: Judge, candidates: Sequence[Candidate], watch: Callable[[events.Event], None]) -> Iterator[Trial]:
    return judge.evaluate_all(candidates, lambda one, stage: watch(events.StageStarted(one, stage)))


class _Search:
    """One walk through the rounds."""

    def __init__(
        self,
        run: Run,
        ledger: Ledger,
        models: Sequence[ChatModel],
        budget: Budget,
        judge: Judge,
        watch: Callable[[events.Event], None],
    ) -> None:
        self._run = run
        self._budget = budget
        self._ledger = ledger
        self._judge = judge
        self._watch = watch
        self._asker = Asker(run.id, ledger, models, budget, watch)
        self._target = run.target or self._look_at_device()
        self._asked_parents: set[str] = set()
        self._device_away = False
        self._evaluations_waiting = 0

    def advance(self) -> SearchResult:
        """Walks through the rounds, as far as it gets."""
        for number in range(1, self._run.plan.rounds + 1):
            self._watch(events.RoundStarted(number))
            ideas = self._propose(number)
            candidates = self._write(number, ideas)
            while candidates:
                failed = self._evaluate(number, candidates)
                candidates = self._repair(number, failed)
            if self._asker.pending or self._evaluations_waiting:
                waiting = self._asker.pending, self._evaluations_waiting
                return SearchResult(RunStatus.WAITING, *waiting, self._budget.capped)
            if self._budget.capped:
                return SearchResult(RunStatus.STOPPED, capped=self._budget.capped)
            if not ideas:
                break
        return SearchResult(RunStatus.DONE)

    def _look_at_device(self) -> Target:
        target = self._judge.target()
        self._ledger.set_target(self._run.id, target)
        return target

    def _tree(self) -> Tree:
        return Tree.read(self._ledger, self._run)

    def _propose(self, number: int) -> list[Idea]:
        """Asks as many parents for ideas as the plan allows, and keeps what they propose."""
        tree = self._tree().before(number)
        if number == 1:
            ideas = self._ask_ideas(number, tree, None)
            return [] if isinstance(ideas, Missing) else ideas
        proposed: list[Idea] = []
        places = self._run.plan.parents
        chosen: list[Node] = []
        while places and (parent := next_parent(tree.nodes, chosen, self._asked_parents)):
            # Also one whose branch ends stays chosen: who follows must not depend on which answers are there already.
            chosen.append(parent)
            ideas = self._ask_ideas(number, tree, parent)
            if ideas is Missing.CAPPED:
                break
            if ideas is not Missing.ENDED:
                places -= 1
            if not isinstance(ideas, Missing):
                proposed += ideas
        self._asked_parents.update(node.candidate.id for node in chosen)
        return proposed

    def _ask_ideas(self, number: int, tree: Tree, parent: Node | None) -> list[Idea] | Missing:
        plan = self._run.plan
        count = plan.next_ideas if parent else plan.ideas
        request = ideas_request(tree, self._target, parent, count)
        parse = partial(parse_ideas, parent=request.parent, count=count)
        ideas = self._asker.ask(request, parse, events.IdeasAsked(number, request))
        if isinstance(ideas, Missing):
            return ideas
        for idea in ideas:
            self._ledger.add_idea(self._run.id, number, idea)
            self._watch(events.IdeaProposed(number, idea))
        return list(ideas)

    def _write(self, number: int, ideas: Sequence[Idea]) -> list[Candidate]:
        """Has each idea implemented in each language."""
        tree = self._tree().before(number)
        written: list[Candidate] = []
        for idea in ideas:
            for language in self._run.languages:
                request = write_request(tree, self._target, idea, language)
                source = self._asker.ask(request, parse_source, events.SourceAsked(number, request))
                if not isinstance(source, Missing):
                    written.append(self._keep(number, first_candidate(tree, idea, language, source)))
        return written

    def _repair(self, number: int, failed: Sequence[Node]) -> list[Candidate]:
        """Sends failed candidates back to the model, unless they were sent back often enough."""
        tree = self._tree()
        repaired: list[Candidate] = []
        for node in failed:
            idea = tree.idea(node.candidate.idea)
            if idea is None or node.candidate.repair >= self._run.plan.repairs:
                continue
            request = repair_request(self._run, self._target, idea, node)
            source = self._asker.ask(request, parse_source, events.SourceAsked(number, request))
            if isinstance(source, Missing):
                continue
            candidate = repaired_candidate(node.candidate, source)
            earlier = tree.node(candidate.id)
            if earlier is None or earlier.candidate == candidate:
                repaired.append(self._keep(number, candidate))
            else:
                self._asker.end(request, f"the answer is the source that was evaluated as {candidate.id}")
        return repaired

    def _keep(self, number: int, candidate: Candidate) -> Candidate:
        self._ledger.add_candidate(self._run.id, number, candidate)
        self._budget.kept(candidate.id)
        self._watch(events.CandidateWritten(number, candidate))
        return candidate

    def _evaluate(self, number: int, candidates: Sequence[Candidate]) -> list[Node]:
        """Evaluates what has no trial yet, and returns the candidates that failed, in the order they have here: what
        the search does next must not depend on which device was quicker."""
        trials = {trial.candidate: trial for trial in self._ledger.trials(self._run.id)}
        each = {candidate.id: candidate for candidate in candidates}
        for known in [one for one in each if one in trials]:
            self._watch(events.TrialDone(number, trials[known]))
        left = [candidate for candidate in each.values() if candidate.id not in trials]
        try:
            for trial in _evaluated(self._judge, left if not self._device_away else (), self._watch):
                self._ledger.add_trial(self._run.id, trial)
                trials[trial.candidate] = trial
                self._watch(events.TrialDone(number, trial))
        except DeviceNotFound:
            self._device_away = True
        self._evaluations_waiting += sum(candidate.id not in trials for candidate in left)
        found = [Node(number, candidate, trials[one]) for one, candidate in each.items() if one in trials]
        return [node for node in found if node.trial and node.trial.outcome not in (Outcome.PASSED, Outcome.NOT_RUN)]
