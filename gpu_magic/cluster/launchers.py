"""Launchers for `ipyparallel.Cluster`: each engine sees only its GPU, and all processes have guardians.

Entry points register them, so `ipyparallel.Cluster(controller="gpu", engines="gpu")` finds them.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing import cpu_count
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any

import psutil
import traitlets
from ipyparallel.cluster.launcher import (
    LocalControllerLauncher,
    LocalEngineLauncher,
    LocalEngineSetLauncher,
    LocalProcessLauncher,
)
from traitlets import Bool, Dict, Float, List, Unicode

from gpu_magic.claims.held import Claims
from gpu_magic.cluster.engine import LOCAL, rank_variables
from gpu_magic.errors import ClusterError
from gpu_magic.gpus.options import Options
from gpu_magic.launch.devices import divide, pick
from gpu_magic.launch.process import LOST, Causes, Guarded, free_ports, how_it_ended
from gpu_magic.process.session import current
from gpu_magic.process.watch import cuda_watch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_magic.gpus.select import Selection

    Client = Any  # ipyparallel's, which has no types

__all__ = [
    "GpuControllerLauncher",
    "GpuEngineLauncher",
    "GpuEngineSetLauncher",
    "GuardedLauncher",
    "claim_gpus",
    "own_places",
]

# Seconds that an engine's nanny may take to report the engine's end to the controller, that engines may take
# to register, and to end.
_LINGER_SECONDS, _REGISTRATION_SECONDS, _END_SECONDS = 5, 60, 30
_POLL_SECONDS = 0.02
# Milliseconds between two heartbeats, by which the controller also finds new engines, and how many an engine
# may miss. A thread of libzmq answers them, also if Python is busy (ipyparallel/controller/heartmonitor.py).
_HEARTBEAT_MILLISECONDS, _MAX_MISSED = 250, 120
# Ports for a controller. ipyparallel 9.2 uses 18, and finds more ports itself if it gets fewer.
_PORTS = 20
_MAX_BYTES, _MAX_LINES = 16 << 10, 10  # of a log


class GuardedLauncher(LocalProcessLauncher):  # type: ignore[misc] # ipyparallel has no types
    """Runs a process under a guardian, which ends all that it has started, also if this process is killed."""

    folder = Unicode(config=True, help="A folder that the guardian removes if this process has ended.")
    linger_seconds = 0.0  # how long other processes may run after the launched one has ended

    code: int | None = None  # the exit code; negative: by that signal; None: the process runs
    outcome = ""  # how the process has ended, for example "ended by SIGKILL"
    _guarded: Guarded | None = None  # None: not started, or started by another process
    _output = ""

    def start(self) -> None:
        """Start the process, also again after its end."""
        log = Path(self.output_file)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        # Variables of ipyparallel would connect its programs to another cluster.
        outer = {
            name: value for name, value in cuda_watch.environment().items() if not name.startswith("IPP_")
        }
        own: Mapping[str, str | None] = {**outer, **self.get_env()}
        environment = {name: value for name, value in own.items() if value is not None}
        causes = Causes(log.parent)
        self.code, self._all_ended = None, Future[None]()
        self.loop  # noqa: B018 - the default is the loop of the thread that asks first
        guarded = self._guarded = Guarded(
            self.args, environment, self.work_dir, log, self.folder, linger=self.linger_seconds
        )
        self.pid = guarded.pid
        self.notify_start(self.pid)
        threading.Thread(target=self._follow, args=(guarded, causes), daemon=True).start()

    def _follow(self, guarded: Guarded, causes: Causes) -> None:
        while not guarded.has_ended:
            guarded.read_report()
            if guarded.code is not None and self.code is None:
                how = how_it_ended(guarded.code, guarded.failure) if guarded.code else "ended"
                how = LOST if guarded.is_lost else how
                self.outcome = " · ".join([how, *causes.find([guarded.code])])
                self.get_output()
                self.code = guarded.code  # last, because other threads wait for it
                data = {"exit_code": self.code, "pid": self.pid, "identifier": self.identifier}
                self.loop.add_callback(self.notify_stop, data)
        self._all_ended.set_result(None)

    def check(self, name: str) -> None:
        """Raise ClusterError if the process has ended while it started."""
        if self.code is not None:
            last = self.get_output().rpartition("\n")[2]
            raise ClusterError(f"{name} {self.outcome} while starting. {last}")

    def poll(self) -> int | None:
        """Return the exit code. None: the process runs."""
        return self.code

    def signal(self, sig: int) -> None:
        """Send a signal to the process, and not to its guardian."""
        if self._guarded is None:
            super().signal(sig)
            return
        with suppress(psutil.NoSuchProcess):
            for guardian in psutil.Process(self.pid).children() if self.code is None else ():
                # The first child, because the guardian adopts what the process has started.
                for process in sorted(guardian.children(), key=psutil.Process.create_time)[:1]:
                    process.send_signal(sig)

    @property
    def has_ended(self) -> bool:
        """Whether the process, and all that it has started, have ended."""
        return self._all_ended.done()

    async def join(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as ipyparallel's
        """Wait until the process, and all that it has started, have ended."""
        if self._guarded is None:
            await super().join(timeout)
        else:
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self._all_ended)), timeout)

    async def stop(self) -> None:
        """End the process, and all that it has started."""
        if self._guarded is None:
            await super().stop()
        else:
            self._guarded.end()
            await self.join()

    def get_output(self, remove: bool = False) -> str:
        """Return the last lines of the output outside cells. After a crash, they begin with its report."""
        if self.code is None:
            self._output = self._last_lines()
        if remove:
            Path(self.output_file).unlink(missing_ok=True)
        return self._output

    def _last_lines(self) -> str:
        try:
            text = Path(self.output_file).read_bytes()[-_MAX_BYTES:].decode(errors="replace")
        except OSError:
            return ""
        lines = [line for line in text.splitlines() if line.strip() and "[KernelNanny" not in line]
        # The first frames of faulthandler are the user's.
        crash = next((place for place, line in enumerate(lines) if line.startswith("Fatal ")), None)
        return "\n".join(lines[-_MAX_LINES:] if crash is None else lines[crash : crash + _MAX_LINES])


class GpuControllerLauncher(GuardedLauncher, LocalControllerLauncher):  # type: ignore[misc]
    """Runs a controller that soon finds new engines, on ports that no other program uses."""

    controller_cmd = List(
        # -P, so that a file of the user cannot replace a module of Python.
        [sys.executable, "-P", "-m", "ipyparallel.controller"],
        config=True,
        help="The command that starts the controller.",
    )

    def start(self) -> None:
        """Start the controller."""
        beat = f"--ping={_HEARTBEAT_MILLISECONDS}", f"--HeartMonitor.max_heartmonitor_misses={_MAX_MISSED}"
        options = [*own_places(), "--nodb", "--usethreads", "--log-level=CRITICAL", *beat]
        self.controller_args = [*options, *self.controller_args]  # type: ignore[has-type] # later ones win
        super().start()


class GpuEngineLauncher(GuardedLauncher, LocalEngineLauncher):  # type: ignore[misc]
    """Runs one engine of a `GpuEngineSetLauncher`, its parent."""

    linger_seconds = _LINGER_SECONDS

    def find_args(self) -> list[str]:
        """Return the command."""
        wait = f"--timeout={_REGISTRATION_SECONDS}", "--log-level=CRITICAL"
        return [*self.engine_cmd, f"--IPEngine.id={self.identifier}", *wait, *self.engine_args]

    def get_env(self) -> dict[str, str | None]:
        """Return the variables of this engine. None: the variable is unset."""
        number = int(self.identifier)
        return {**super().get_env(), **self.parent.parts[number].variables, **self.parent.ranks[number]}


class GpuEngineSetLauncher(LocalEngineSetLauncher):  # type: ignore[misc]
    """Runs an engine for each GPU of this process. Each engine sees only its GPU, and is a rank.

    `n` engines get the first GPUs. Without `n`, there is an engine for each GPU.
    """

    gpus = Unicode(config=True, help="The GPUs, as typed after %gpus. Default: those of this process.")
    force = Bool(False, config=True, help="Allow GPUs outside those that this process was given.")
    delay = Float(0.0, config=True, help="Seconds between the starts of two engines.")
    engine_cmd = List(
        [sys.executable, "-P", "-m", "gpu_magic.cluster.engine"],
        config=True,
        help="The command that starts an engine.",
    )
    parts: Any = List(help="A Selection for each engine. Default: those of `gpus`.")
    claims: Any = traitlets.Any(help="The claims of the GPUs, which end with the engines.")
    all = Dict(help="The launchers of all engines. ipyparallel's `launchers` lacks those that have ended.")

    launcher_class = GpuEngineLauncher

    def start(self, n: int) -> None:
        """Start engines.

        Raises
        ------
        ChoiceError, LaunchError
            There are no such GPUs, or fewer than `n`.

        """
        if not self.parts:
            # ipyparallel replaces no number by the number of CPUs.
            count = None if n == cpu_count() and getattr(self.parent, "n", None) is None else n
            self.parts, self.claims = claim_gpus(self.gpus or None, count, force=self.force)
        self.ranks = rank_variables([LOCAL] * len(self.parts), {LOCAL: free_ports(len(self.parts) + 2)})
        try:
            super().start(len(self.parts))
        finally:
            self.all = dict(self.launchers)

    def wait_for_engines(self, client: Client, engines: Mapping[str, GpuEngineLauncher]) -> None:
        """Wait until engines have registered. Raise ClusterError if one ends or takes over a minute."""
        launched = {"The controller": self.parent.controller}
        launched |= {f"Engine {number}": engine for number, engine in engines.items()}
        deadline = time.monotonic() + _REGISTRATION_SECONDS
        while waiting := [number for number in engines if int(number) not in client.ids]:
            for name, launcher in launched.items():
                if isinstance(launcher, GuardedLauncher):
                    launcher.check(name)
            if time.monotonic() > deadline:
                raise ClusterError(f"Engine {waiting[0]} did not answer within {_REGISTRATION_SECONDS} s.")
            time.sleep(_POLL_SECONDS)

    def restart(self, client: Client, numbers: Sequence[int]) -> None:
        """End engines, and start them again with their GPUs.

        Raises
        ------
        ClusterError
            An engine does not end, or does not start.

        """
        engines = {str(number): self.all[str(number)] for number in numbers}
        for engine in engines.values():
            # ipyparallel's nanny of the engine reports its end to the controller, and then also ends.
            engine.signal(signal.SIGKILL)
        deadline = time.monotonic() + _END_SECONDS
        for number, engine in engines.items():
            while not engine.has_ended or int(number) in client.ids:
                if time.monotonic() > deadline:
                    how = "To end all engines: %gpu_cluster stop"
                    raise ClusterError(f"Engine {number} did not end within {_END_SECONDS} s. {how}")
                time.sleep(_POLL_SECONDS)
        for engine in engines.values():
            self.launchers[engine.identifier] = engine
            engine.start()
        self.wait_for_engines(client, engines)

    def end_of(self, number: int | None) -> tuple[str, str]:
        """Return how an engine, or the controller, has ended, and its last lines of output."""
        launcher = self.parent.controller if number is None else self.all[str(number)]
        deadline = time.monotonic() + _END_SECONDS
        while launcher.poll() is None and time.monotonic() < deadline:  # the guardian can report it later
            time.sleep(_POLL_SECONDS)
        return launcher.outcome or "ended", launcher.get_output()

    async def stop(self) -> None:
        """End all engines, and their claims."""
        await asyncio.gather(*(engine.stop() for engine in {**self.launchers, **self.all}.values()))
        if self.claims is not None:
            self.claims.release()


def claim_gpus(gpus: str | None, count: int | None, *, force: bool) -> tuple[list[Selection], Claims]:
    """Pick the GPUs for engines, as `pick` does, and claim them. Return a Selection for each engine."""
    session = current()
    claims = Claims("engines", session.access)
    try:
        picked = pick(session, gpus, count, Options(force=force), claims=claims, is_divided=True)
        return divide(picked), claims
    except BaseException:  # also an interrupt
        claims.release()
        raise


def own_places() -> list[str]:
    """Return options for a controller: a random loopback address, and ports that Linux does not assign.

    If another program opens a port before the controller does, the controller or one of its threads ends.
    """
    address = ".".join(["127", *(str(SystemRandom().randint(1, 254)) for _ in range(3))])
    ports = ",".join(map(str, free_ports(_PORTS)))
    return [f"--ip={address}", f"--IPController.monitor_ip={address}", f"--ports={ports}"]
