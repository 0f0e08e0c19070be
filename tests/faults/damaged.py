"""Files of a run directory that are not as they were written, by accident or by somebody who knows how."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import count

from tests.faults.damage import Kind, damage, files_of, kinds_for
from tests.faults.harness import Harness, Outcome
from tests.faults.killed import named
from tests.faults.steps import Step
from tests.faults.tampering import CASES, Case
from tests.faults.trial import Trial

_WORDS = {
    "cut": "is cut", "bit": "has a bit turned", "gone": "is gone", "empty": "is empty", "folder": "is a folder"
}  # fmt: skip


def trials(h: Harness) -> Iterator[Trial]:
    seeds, turn = h.seeds(3_000), count()
    # Who reads files that Spark wrote is Spark.
    for slug in ("stage-2", "merge") if h.spark else ("decide-1", "decide-2", "publish"):
        step = h.step(slug)
        h.world.restore(slug)
        names = [str(path.relative_to(h.world.folder)) for path in files_of(h.world.folder)]
        for name in _all_or_one_of_each(names, step):
            kinds = kinds_for(h.world.folder / name)
            for kind in kinds if not h.spark else [kinds[next(turn) % len(kinds)]]:
                fault = f"{named(name)} {_WORDS[kind]}"
                yield Trial("damage", step.name, fault, next(seeds), partial(_damaged, step, name, kind), step.spark)
    for case in CASES if h.spark else ():
        for resealed in (False, True):
            fault = f"{case.words}, {'with all checksums made right again' if resealed else 'as it is'}"
            yield Trial(
                "tampering", h.step(case.before).name, fault, next(seeds), partial(tampered, case, resealed), True
            )


def _all_or_one_of_each(names: list[str], step: Step) -> list[str]:
    """Every file where a trial costs little; else one of those alike."""
    return names if not step.spark else list({named(name): name for name in names}.values())


def _damaged(step: Step, name: str, kind: Kind, h: Harness, seed: int) -> Outcome:
    h.begin(step)
    damage(h.world.folder / name, kind, seed)
    if not step.alike:
        return result_of_going_on(step, h)
    ended = h.attempt(step).ended()
    h.check_failure(step, ended)
    if ended.code != 0:
        return "stopped"
    made, right = h.world.settled(), h.world.settled(h.after(step))
    for document in set(right) - set(h.world.settled(step.slug)):
        assert made[document] == right[document], f"another {document}"
    return "right"


def result_of_going_on(step: Step, h: Harness) -> Outcome:
    """Run this step and all that follow: all right, or stopped before anything was published."""
    for one in h.steps[h.steps.index(step) :]:
        ended = h.attempt(one).ended()
        h.check_failure(one, ended)
        if ended.code != 0:
            h.last_sentence = ended.sentence
            h.world.check_published(new=False)
            return "stopped"
    h.world.check_published(new=True)
    return "right"


def tampered(case: Case, resealed: bool, h: Harness, seed: int) -> Outcome:
    """Change the run directory on purpose, go on, and hold whoever noticed to the sentence that it should have said."""
    del seed
    step = h.step(case.before)
    h.begin(step)
    case.tamper(h.world.run, resealed)
    outcome = result_of_going_on(step, h)
    assert outcome == "stopped", "nobody noticed"
    noticed = case.ledger if resealed else case.checksum
    assert re.search(noticed, h.last_sentence), f"another sentence: {h.last_sentence}"
    return outcome
