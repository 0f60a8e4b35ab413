"""Waits until GPUs are free, and chooses them."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_magic.errors import ChoiceError, NotFreeError
from gpu_magic.process.choosing import apply
from gpu_magic.process.state import probe
from gpu_magic.process.view import read_for_auto
from gpu_magic.process.wait import Wait
from gpu_magic.selection.request import Auto, Named, parse
from gpu_magic.selection.select import select
from gpu_magic.spelling import either

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_magic.devices.inventory import Inventory
    from gpu_magic.process.outcome import Applied, Refused
    from gpu_magic.process.session import Session
    from gpu_magic.selection.options import Options

__all__ = ["Waiting"]


class Waiting(Wait):
    """A wait for GPUs that are then chosen here.

    GPUs that are named it waits for until nobody else uses or has claimed them. With `auto`, and without a
    bound of memory or utilization, it waits for GPUs that nobody uses or claims.

    Parameters
    ----------
    session
        This process's.
    text, options
        As typed after `%gpus`.
    seconds
        How long to wait; None: without an end.

    Raises
    ------
    ChoiceError
        This is nothing to wait for.

    """

    def __init__(self, session: Session, text: str, options: Options, seconds: float | None) -> None:
        request = parse(text)
        if not isinstance(request, Auto | Named):
            goes = "goes with auto and with GPUs by number; try"
            raise ChoiceError(
                either(
                    f"--wait {goes} auto:2{options} --wait 30m, or 1,3 --wait 30m.",
                    f"A wait {goes} 'auto:2', or '1,3'.",
                )
            )
        super().__init__(request, options, seconds)
        self._session, self._text = session, text

    def wait(self, show: Callable[[str], None]) -> Applied | Refused:
        """Wait, and return what was chosen; each line to show is handed over.

        Raises
        ------
        ChoiceError
            The time is over, or these GPUs can't be chosen, however long one waits; nothing was changed.

        """
        while (outcome := self._look(self._read())) is None:
            show(str(self))
            time.sleep(self.next_pause())
        return outcome

    async def wait_async(self) -> Applied | Refused:
        """Do the same without blocking: other code runs on the thread's event loop meanwhile."""
        # What other processes do is nothing that could be awaited.
        while (outcome := self._look(await asyncio.to_thread(self._read))) is None:  # noqa: ASYNC110
            await asyncio.sleep(self.next_pause())
        return outcome

    def look(self) -> bool:
        """Return whether they can be chosen now, or the attempt says why never; choose nothing.

        It can be called on any thread.

        Raises
        ------
        ChoiceError
            They can't be chosen, however long one waits.

        """
        if not probe().can_change:
            return True
        session, inventory = self._session, self._read()
        if isinstance(self._request, Auto):
            inventory = inventory.with_claims(session.claims.taken())
        holders = ""
        try:
            select(
                self._request,
                inventory,
                session.inherited,
                self._options,
                grant=session.grant,
                held=session.claims.held,
                rank=session.local_rank,
            )
        except NotFreeError as error:
            holders = error.holders
        self.wanted, self.holders = self._what(inventory), holders
        return not holders

    def _read(self) -> Inventory:
        return read_for_auto(self._session)

    def _look(self, inventory: Inventory) -> Applied | Refused | None:
        """Choose, where that can be done now; return None where not.

        Raises
        ------
        ChoiceError
            It can't be done later either, or there is no later.

        """
        if not probe().can_change:  # waiting changes nothing about that
            return apply(
                self._session, self._text, replace(self._options, only_free=False), inventory=inventory
            )
        try:
            return apply(self._session, self._text, self._options, inventory=inventory)
        except NotFreeError as error:
            self.note(inventory, error.holders)
        except ChoiceError:
            # It will never do. The same is said of what was typed.
            apply(self._session, self._text, self._given, dry_run=True, inventory=inventory)
            raise
        return None
