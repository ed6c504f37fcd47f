"""Whether an operand has an empty history, with as few looks at the histories as can be.

On a GPU a look waits for all work before it. So it is made only where the answer does not follow from
an earlier one: a value that was found in a history stays there until as many pushes as the history has
entries have followed it. While an operand is empty each push may end that, and is looked at.

Meanwhile `aside` starts copies that nobody waits for, and a copy that has arrived extends what is known.
When it arrives makes no difference to the answers, only to whether a look is needed for them.
"""

from __future__ import annotations

from typing import Callable

import torch

Aside = Callable[[], tuple[torch.Tensor, Callable[[], bool]]]


def pushes_left(histories: torch.Tensor) -> int:
    """Histories are [operand, push], newest first. How many pushes leave none of them empty, whatever they
    bring; -1: one is empty: it has no amax above 0, or a NaN (as frontend/first.c has it)."""
    n, length = histories.shape
    if not n:
        return length - 1
    there = (histories > 0) & ~histories.isnan().any(1, keepdim=True)
    newest = torch.where(there.any(1), there.int().argmax(1), length)
    return int(length - 1 - newest.max())


class Seen:
    """empty: whether a history is empty now. looks: how often that was looked up.

    look: reads the histories. aside: begins to copy them; -> the copy, and a function that says whether it
    is complete. None: there are no such copies."""

    def __init__(self, look: Callable[[], torch.Tensor], aside: Aside | None = None):
        self._look, self._aside = look, aside
        self.looks = 0
        self._left = -1  # so many more pushes leave no history empty
        self._copy: tuple[torch.Tensor, Callable[[], bool]] | None = None  # on its way
        self._since = 0  # pushes after it
        self._length = 0

    @property
    def empty(self) -> bool:
        return self._left < 0

    def changed(self) -> None:
        """The histories were written: nothing is known of them any more."""
        self._copy = None
        histories = self._look()
        self.looks += 1
        self._left, self._length = pushes_left(histories), histories.shape[1]

    def pushed(self) -> None:
        """Each history was pushed once, or none was."""
        self._left -= 1
        self._since += 1
        if self._copy is not None and self._copy[1]():
            self._left = max(self._left, pushes_left(self._copy[0]) - self._since)
            self._copy = None
        if self._left < 0:
            self.changed()
        elif self._aside is not None and self._copy is None and 2 * self._left < self._length:
            self._copy, self._since = self._aside(), 0
