"""Has frameworks use some of the GPUs that a process has, once CUDA is initialized: `--in-process`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.errors import ChoiceError
from gpu_magic.log import logger
from gpu_magic.process.environment import variables_now
from gpu_magic.process.outcome import Narrowed
from gpu_magic.process.settings import settings_of
from gpu_magic.process.state import State
from gpu_magic.process.view import judge_process, read_machine
from gpu_magic.process.watch import cuda_watch
from gpu_magic.selection.options import Options
from gpu_magic.selection.request import Nothing, Reset, parse
from gpu_magic.selection.select import Selection, select, select_among
from gpu_magic.selection.visible import names_of
from gpu_magic.text import listed

if TYPE_CHECKING:
    from gpu_magic.devices.model import Device
    from gpu_magic.process.session import Session

__all__ = ["narrow"]

_PLAIN = Options()
_log = logger("process")


def narrow(session: Session, text: str, options: Options = _PLAIN, *, dry_run: bool = False) -> Narrowed:
    """Have the imported frameworks use some of the GPUs that this process has, once CUDA is initialized.

    Parameters
    ----------
    session, text, options, dry_run
        As for `apply`; no option goes with it.

    Raises
    ------
    ChoiceError
        CUDA has not been initialized, or the process has not got these GPUs; nothing was changed.

    """
    request = parse(text)
    if options != _PLAIN:
        raise ChoiceError(
            "An in-process choice sets neither CUDA_VISIBLE_DEVICES nor memory limits: omit "
            f"{listed(options.given)}."
        )
    inventory = read_machine(session)
    guard = judge_process(inventory, cuda_watch.look())
    runtime = guard.runtime
    if guard.state is State.FORKED:
        raise ChoiceError(f"{guard}: start this process with spawn.")
    if guard.state is not State.FROZEN:
        select(
            request, inventory, session.inherited, grant=session.grant
        )  # it raises where this would be no way out
        raise ChoiceError(
            f"{runtime} has not been initialized here: try %gpus {text}, which is for every framework."
        )
    if isinstance(request, Nothing):
        raise ChoiceError(
            f"none can't hide GPUs once {runtime} has been initialized; %%on_gpu cpu runs a cell on the CPU."
        )
    wanted: tuple[Device, ...] = ()
    if not isinstance(request, Reset):
        wanted = select_among(request, inventory, guard.known)
    ordinals = guard.ordinals(wanted)
    if len(ordinals) < len(wanted):
        other = " and no other" if guard.devices else ""
        can_use = f"this process can use {guard.frozen_to}{other}"
        raise ChoiceError(f"{runtime} was {guard.seen}, and {can_use}.")
    results: list[str] = []
    if not dry_run:
        settings = settings_of(session)
        results = settings.narrow(ordinals) if wanted else settings.widen()
    names = names_of(*(inventory.vendors or ("nvidia",)))
    selection = Selection(wanted, variables_now().named(names), (), guard.vendor)
    outcome = Narrowed(selection, dry_run, bool(inventory.simulated), ordinals, tuple(results))
    if not dry_run:
        _log.info("%s", outcome)
    return outcome
