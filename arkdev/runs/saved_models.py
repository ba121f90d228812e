"""The models that a run saves, in Hugging Face layout: which are kept, which is best, which last.

The best and the last are always kept. A limit counts them too: the newest of the others stay as
long as there is room. With a limit of 1 there are so up to two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from arkdev.errors import RunError
from arkdev.runs.snapshots import Snapshot, Snapshots, damage_of

MODELS = "models"
"""The folder of a run that has them."""
SCORE = "score"

BEST = "best"
LAST = "last"


class SavedModels:
    """The saved models of one run."""

    def __init__(self, run: Path, *, run_id: str, limit: int | None = None) -> None:
        """Look into the folder `run`. `limit` is `save_model_limit`; None keeps all."""
        self._snapshots = Snapshots(run / MODELS, run_id=run_id)
        self._run_id = run_id
        self._limit = limit

    def save(
        self,
        step: int,
        write: Callable[[Path], None],
        *,
        score: float | None,
        facts: Mapping[str, Any],
    ) -> Path:
        """Save the model after `step` steps and remove those above the limit; return its folder.

        `write` fills the folder that it is given. `score` is what models are compared by, None for
        one that was not validated. Raises `OutputError`, which hurts none of those saved before.
        """
        saved = self._snapshots.save(step, write, facts={**facts, SCORE: score})
        found = self._snapshots.all()
        if self._limit is not None and len(found) > self._limit:
            kept = {snapshot.step for snapshot in (found[0], best_of(found)) if snapshot}
            for snapshot in found:  # the newest first
                if len(kept) < self._limit:
                    kept.add(snapshot.step)
            self._snapshots.keep(kept)
        return saved.folder

    def remove_after(self, step: int) -> list[int]:
        """Remove those of more steps than `step`, which are redone; return their steps."""
        return self._snapshots.remove_after(step)

    def all(self) -> list[Snapshot]:
        """Return them, the newest first."""
        return self._snapshots.all()

    def best(self) -> Snapshot | None:
        """Return the first that no other beats; None when none was validated."""
        return best_of(self.all())

    def chosen(self, which: str) -> Snapshot:
        """Return the one called ``best``, ``last`` or by its number of steps, whole.

        Raises `RunError`, which says what there is; also for one that is damaged.
        """
        found = self.all()
        if which == LAST:
            snapshot = found[0] if found else None
        elif which == BEST:
            snapshot = best_of(found)
        else:
            snapshot = next((each for each in found if str(each.step) == which), None)
        if snapshot is None:
            raise RunError(f"run {self._run_id} {_lack(which, found)}", hint=_there_is(found))
        if damage := damage_of(snapshot.folder):
            raise RunError(
                f"the model is not whole: {damage}",
                where=str(snapshot.folder),
                hint=_there_is([each for each in found if each is not snapshot]),
            )
        return snapshot


def best_of(snapshots: list[Snapshot]) -> Snapshot | None:
    """Return the one of the highest score, the earliest of equals; None when none has one."""
    scored = [each for each in snapshots if each.facts.get(SCORE) is not None]
    return max(scored, key=lambda each: (each.facts[SCORE], -each.step), default=None)


def _lack(which: str, found: list[Snapshot]) -> str:
    if not found:
        return "has saved no model yet"
    if which == BEST:
        return "has no best model: none of those that it saved was validated"
    return f"has no saved model of {which} steps"


def _there_is(found: list[Snapshot]) -> str:
    if not found:
        return "models are saved every save_every_n_steps, and at the end"
    there = ", ".join(f"step {each.step}" for each in found)
    return f"there is {there}: RUN@{found[0].step} as a --model, --step of `arkdev export`"
