"""A simulated machine for your tests: the real pynvml with GPUs that do not exist.

>>> from gpu_magic.testing import simulate
>>> with simulate("2xRTX-4090+1xT4", seed=1, clock=lambda: 0.0) as machine:
...     machine.gpus[0].run("train.py", "maria", 20 << 30, work=90)
...     machine.gpus[2].lose()
...     print(gpu_magic.gpus())

In the block, all code that reads GPUs through nvidia-ml-py reads this machine.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from gpu_magic.devices.model import UNKNOWN
from gpu_magic.devices.simulated import Machine, SimulatedGpu, SimulatedMig, beneath
from gpu_magic.errors import SimulationError
from gpu_magic.process.drivers import Driver, driver, use_driver
from gpu_magic.process.environment import set_variable, variables_now
from gpu_magic.process.mask import NAMES, Variables
from gpu_magic.process.session import Session, current, use_session
from gpu_magic.process.view import Snapshot
from gpu_magic.process.watch import cuda_watch

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Machine", "SimulatedGpu", "SimulatedMig", "SimulationError", "simulate", "start_cuda"]


class _SimulatedDriver(Driver):
    """The CUDA driver of simulated GPUs. It calls no library."""

    _names = ()
    uuids: tuple[str, ...] | None = None  # of the GPUs that CUDA started with; None: not started

    def is_started(self) -> bool:
        return self.uuids is not None

    def devices(self) -> tuple[str, ...]:
        return self.uuids or ()


@contextlib.contextmanager
def simulate(
    profile: str | Machine = "8xA100-80GB",
    *,
    mask: str | None = None,
    order: str | None = None,
    **options: Any,
) -> Iterator[Machine]:
    """Simulate a machine in a `with` block. In the block, all code that uses pynvml reads this machine.

    After the block, CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER are as before. The machine starts without
    processes. `populate` starts some. In the block, CUDA counts as not started, even if it has started in
    the process. `start_cuda` starts it in the simulation.

    Parameters
    ----------
    profile
        The GPUs: `8xA100-80GB`, `2xRTX-4090+1xT4` or `1xA100-80GB(3g.40gb,4g.40gb)`. Or a `Machine`.
    mask, order
        CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, as if the process had started with them. None: not set.
    options
        Options of `Machine`: seed, clock, driver, cuda.

    Raises
    ------
    SimulationError
        The profile is not valid.

    """
    if isinstance(profile, Machine) and options:
        raise TypeError(f"{', '.join(options)}: not for a Machine, which has its own")
    machine = profile if isinstance(profile, Machine) else Machine(profile, **options)
    with beneath(machine):
        inside, variables, first = Session(Variables(mask, order)), variables_now(), cuda_watch.first
        session, asked, cuda_watch.first = use_session(inside), use_driver(_SimulatedDriver()), None
        if session is not None:
            inside.by, inside.claims.are_wanted = session.by, session.claims.are_wanted
        try:
            _set_all(inside.inherited)
            yield machine
        finally:
            use_driver(asked)
            cuda_watch.first = first
            inside.unload()
            use_session(session)
            _set_all(variables)


def _set_all(variables: Variables) -> None:
    for name, value in zip(NAMES, variables, strict=True):
        set_variable(name, value)


def start_cuda() -> None:
    """Start CUDA in the simulation, as a framework does. After that, another choice comes too late.

    >>> import gpu_magic, pytest
    >>> from gpu_magic.testing import simulate, start_cuda
    >>> with simulate("4xA100-80GB"):
    ...     gpu_magic.choose("2,0")
    ...     start_cuda()
    ...     with pytest.warns(gpu_magic.CudaInitializedWarning):
    ...         gpu_magic.choose(1)

    Raises
    ------
    SimulationError
        The call is not in a `simulate` block, or CUDA_VISIBLE_DEVICES cannot be read.

    """
    cuda = driver()
    if not isinstance(cuda, _SimulatedDriver):
        raise SimulationError("start_cuda() works only within `with simulate(...)`")
    snapshot = Snapshot.take(current())
    if snapshot.visible is UNKNOWN:
        raise SimulationError(f"which GPUs CUDA would see is unknown: {' '.join(map(str, snapshot.notes))}")
    if cuda.uuids is None:  # a second call changes nothing
        identities = (one if isinstance(one, str) else one.identity for one in snapshot.visible)
        cuda.uuids = tuple(one.partition("-")[2] for one in identities)
