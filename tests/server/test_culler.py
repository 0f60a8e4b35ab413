"""What becomes of real kernels of Jupyter's own managers that hold GPU memory idle. The test sets the clock."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from jupyter_server.services.sessions.sessionmanager import SessionManager

from gpu_magic.devices.idle import LONGEST_GAP
from gpu_magic.server.culler import Culler, Refused, ask_to_park
from gpu_magic.server.idle_kernels import Rule
from gpu_magic.server.reading import Reading
from gpu_magic.testing import simulate
from tests.conftest import LIMIT
from tests.processes import sees_processes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from gpu_magic.testing import Machine

pytestmark = sees_processes

GIB = 1 << 30
AFTER, WARN = 200, 60  # seconds
SHUTS_DOWN = Rule(AFTER, WARN, parks=False)
PARKS = SHUTS_DOWN._replace(parks=True)
PARKING = """
from comm import get_comm_manager
def park(comm, message):
    open('asked', 'a').write('x')
    comm.send({ANSWER})
    comm.close()
get_comm_manager().register_target('gpu_magic.park', park)
"""


class Jupyter:
    """A Jupyter server's managers and log, and the machine."""

    def __init__(self, folder: Path, machine: Machine, rule: Rule) -> None:
        self.folder, self.machine, self.now = folder, machine, 0.0
        self.log = logging.getLogger("jupyter")
        self.kernel_manager: Any = AsyncMappingKernelManager(root_dir=str(folder), connection_dir=str(folder))
        contents = AsyncLargeFileManager(root_dir=str(folder))
        self.session_manager: Any = SessionManager(
            kernel_manager=self.kernel_manager, contents_manager=contents
        )
        self.reading = Reading(keeps=0)
        self.culler = Culler(self, self.reading, rule, lambda: self.now)

    async def start(self, name: str, cell: str = "") -> str:
        """Start a notebook whose kernel has memory on GPU 0, and run a cell. Return the kernel's ID."""
        how = {"path": f"{name}.ipynb", "name": name, "type": "notebook", "kernel_name": "python3"}
        kernel: str = (await self.session_manager.create_session(**how))["kernel"]["id"]
        self.hold(self.kernel_manager.get_kernel(kernel).provisioner.pid)
        await self.run(kernel, cell)
        return kernel

    def hold(self, pid: int, work: int = 0) -> None:
        self.machine.gpus[0].run("ipykernel", "maria", 2 * GIB, pid=pid, is_same_user=True, work=work)

    async def run(self, kernel: str, cell: str) -> str:
        """Run a cell, and return what it has printed."""
        said, manager = [], self.kernel_manager.get_kernel(kernel)
        client = manager.client()
        client.start_channels()
        await client.wait_for_ready(timeout=LIMIT)
        began = datetime.now(UTC)  # that the kernel has started counts as activity, too
        await client.execute_interactive(
            cell, timeout=LIMIT, output_hook=lambda message: said.append(message["content"].get("text", ""))
        )
        client.stop_channels()
        # Until the manager knows of its end.
        while not (manager.execution_state == "idle" and manager.last_activity > began):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return "".join(said)

    def rest(self, kernel: str, hours: float = 9) -> None:
        """Let the last cell of a kernel be long ago."""
        manager = self.kernel_manager.get_kernel(kernel)
        manager.last_activity -= timedelta(hours=hours)

    async def pass_by(self, seconds: float) -> None:
        """Let time pass, with looks, and let what they have begun end."""
        step = LONGEST_GAP - 5
        for _ in range(round(seconds / step)):
            self.now += step
            await self.culler.look()
            while tasks := [*self.culler._ending.values()]:
                await asyncio.gather(*tasks)

    def warned(self) -> set[str]:
        return {*self.culler.answer()["kernels"]}

    async def paths(self) -> list[str]:
        """Return the notebooks that have a kernel."""
        return sorted(one["path"] for one in await self.session_manager.list_sessions())


@pytest.fixture
def play(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., None]:
    """Return what plays a scene with a server in an event loop of its own."""

    def run(scene: Callable[[Jupyter], Awaitable[None]], rule: Rule = SHUTS_DOWN) -> None:
        async def main() -> None:
            with simulate("2xA100-80GB", clock=lambda: 0.0) as machine:
                jupyter = Jupyter(tmp_path, machine, rule)
                try:
                    await jupyter.culler.look()
                    async with asyncio.timeout(LIMIT):
                        await scene(jupyter)
                finally:
                    await jupyter.kernel_manager.shutdown_all(now=True)
                    jupyter.session_manager.close()
                    jupyter.reading.reader.close()

        with ThreadPoolExecutor(1) as pool:  # a loop can run in this thread: Playwright's
            pool.submit(lambda: asyncio.run(main())).result()

    return run


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.getMessage().startswith("gpu_magic: ")]


def test_a_server_that_can_read_no_gpu_says_once_that_it_culls_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The machine of the tests has no GPU."""

    async def main() -> None:
        jupyter = Jupyter(tmp_path, cast("Any", None), SHUTS_DOWN)
        for _ in range(2):
            await jupyter.culler.look()
        jupyter.session_manager.close()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(main())).result()
    (line,) = told(caplog)
    assert line.startswith("gpu_magic: no kernel is culled: NVML is missing")


def test_an_idle_kernel_is_shut_down_with_its_session_and_no_other(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def scene(jupyter: Jupyter) -> None:
        idle, trains, starts, works = [
            await jupyter.start(name) for name in ("idle", "trains", "starts", "works")
        ]
        child = "import subprocess; child = subprocess.Popen(['sleep', '600']); print(child.pid)"
        jupyter.hold(int(await jupyter.run(trains, child)), work=90)
        orphan = "print(subprocess.check_output('sleep 600 >/dev/null & echo $!', shell=True, text=True))"
        number = await jupyter.run(starts, f"import subprocess; {orphan}")
        jupyter.hold(int(number), work=90)
        empty = await jupyter.start("empty")
        jupyter.machine.gpus[0].processes[-1].memory = 0
        for kernel in (idle, trains, starts, works, empty):
            jupyter.rest(kernel)
        go_on = asyncio.create_task(
            jupyter.run(works, "import pathlib\nwhile not pathlib.Path('go').exists(): 0")
        )
        while jupyter.kernel_manager.get_kernel(works).execution_state != "busy":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await jupyter.pass_by(AFTER - WARN + 10)
        assert jupyter.warned() == {idle}
        (about,) = jupyter.culler.answer()["kernels"].values()
        assert about["gpus"] == ("GPU 0",)
        assert about["memory"] == 2 * GIB
        assert await jupyter.paths() == [
            f"{one}.ipynb" for one in ("empty", "idle", "starts", "trains", "works")
        ]
        await jupyter.pass_by(WARN)
        assert await jupyter.paths() == [f"{one}.ipynb" for one in ("empty", "starts", "trains", "works")]
        assert idle not in jupyter.kernel_manager
        assert jupyter.culler.answer()["ended"] == {idle: "idle.ipynb"}
        (jupyter.folder / "go").touch()
        await go_on
        await jupyter.run(trains, "child.kill()")
        await jupyter.run(starts, f"import os; os.kill({number}, 9)")
        warning, end = told(caplog)
        assert warning.startswith(f"gpu_magic: kernel {idle}, idle.ipynb, idle for 9 h")
        assert warning.endswith("with 2.0 GiB on GPU 0 will be shut down in 1 min")
        assert end.startswith(f"gpu_magic: shutting down kernel {idle}, idle.ipynb, idle for ")

    play(scene)


def test_used_or_kept_in_the_warning_it_stays(play: Callable[..., None]) -> None:
    async def scene(jupyter: Jupyter) -> None:
        used, kept = [await jupyter.start(name) for name in ("used", "kept")]
        jupyter.rest(used)
        jupyter.rest(kept)
        await jupyter.pass_by(AFTER - 10)
        assert jupyter.warned() == {used, kept}
        await jupyter.run(used, "1")
        jupyter.culler.keep(kept)
        assert jupyter.warned() == {used}
        await jupyter.pass_by(10)
        assert jupyter.warned() == set()
        jupyter.rest(used)
        await jupyter.pass_by(AFTER - 20)
        assert await jupyter.paths() == ["kept.ipynb", "used.ipynb"]
        assert jupyter.warned() == {used, kept}
        await jupyter.pass_by(30)
        assert await jupyter.paths() == []

    play(scene)


@pytest.mark.parametrize("rule", [SHUTS_DOWN, PARKS], ids=["shut down", "parked"])
def test_a_kernel_that_waits_in_a_cell_is_kept_although_the_server_calls_it_idle(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture, rule: Rule
) -> None:
    """Each answer on the control channel ends with "idle", also while the shell waits in input()."""
    caplog.set_level(logging.INFO)

    async def scene(jupyter: Jupyter) -> None:
        kernel = await jupyter.start("waits", PARKING.replace("ANSWER", "'parked': 1"))
        manager = jupyter.kernel_manager.get_kernel(kernel)
        client = manager.client()
        client.start_channels()
        await client.wait_for_ready(timeout=LIMIT)
        client.execute("input('?')", allow_stdin=True)
        await client.get_stdin_msg(timeout=LIMIT)
        while manager.execution_state != "busy":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        client.control_channel.send(client.session.msg("create_subshell_request", {}))
        while manager.execution_state != "idle":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        jupyter.rest(kernel)
        await jupyter.pass_by(AFTER + 10)
        assert (
            told(caplog)[-1] == f"gpu_magic: kernel {kernel} does not answer, so it runs a cell and is kept"
        )
        assert jupyter.warned() == set()
        assert await jupyter.paths() == ["waits.ipynb"]
        client.input("")
        client.stop_channels()
        assert not (jupyter.folder / "asked").exists()

    play(scene, rule)


def test_kept_while_others_are_shut_down_it_stays_and_then_it_is_too_late(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """A shutdown can take long: the kernel of the first does not end by itself."""
    caplog.set_level(logging.INFO)

    async def scene(jupyter: Jupyter) -> None:
        lingers = "import atexit, time\n@atexit.register\ndef linger():\n  time.sleep(600)"
        slow, kept = await jupyter.start("slow", lingers), await jupyter.start("kept")
        for kernel in (slow, kept):
            jupyter.rest(kernel)
        await jupyter.pass_by(AFTER)
        assert jupyter.warned() == {slow, kept}
        jupyter.now += 10
        await jupyter.culler.look()
        assert jupyter.culler.keep(kept)
        while jupyter.warned():  # noqa: ASYNC110 - until the shutdown of the first has begun
            await asyncio.sleep(0.01)
        assert slow in jupyter.kernel_manager
        assert not jupyter.culler.keep(slow)
        for _ in range(3):  # looks go on meanwhile, so that this is no gap for others
            jupyter.now += 10
            await jupyter.culler.look()
        assert slow in jupyter.kernel_manager
        await asyncio.gather(*jupyter.culler._ending.values())
        assert await jupyter.paths() == ["kept.ipynb"]
        await jupyter.pass_by(AFTER - 40)
        assert jupyter.warned() == {kept}
        await jupyter.pass_by(10)
        assert await jupyter.paths() == []

    play(scene)


def test_a_shutdown_that_fails_is_not_tried_again_at_each_look(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(jupyter: Jupyter) -> None:
        kernel = await jupyter.start("a")
        jupyter.rest(kernel)
        # As when a provisioner has lost its kernel's host.
        manager = jupyter.kernel_manager.get_kernel(kernel)
        manager.shutdown_kernel = None
        await jupyter.pass_by(AFTER + 100)
        del manager.shutdown_kernel
        assert [line for line in told(caplog) if "could not" in line] == [
            f"gpu_magic: kernel {kernel} could not be shut down"
        ]
        assert kernel in jupyter.kernel_manager

    play(scene)


def test_a_kernel_that_may_be_working_is_not_idle(play: Callable[..., None]) -> None:
    """The driver does not tell who works on the GPU, or does not list the processes of another GPU that works."""

    async def scene(jupyter: Jupyter) -> None:
        jupyter.rest(await jupyter.start("a"))
        gpu = jupyter.machine.gpus[0]
        other = gpu.run("train.py", "tom", GIB, work=90)
        gpu.fail("nvmlDeviceGetProcessUtilization", 3)
        await jupyter.pass_by(2 * AFTER)
        assert not jupyter.warned()
        gpu.recover()
        gpu.processes.remove(other)
        jupyter.machine.gpus[1].run("train.py", "tom", GIB, work=90)
        jupyter.machine.gpus[1].fail("nvmlDeviceGetComputeRunningProcesses", 3)
        await jupyter.pass_by(2 * AFTER)
        assert not jupyter.warned()
        assert await jupyter.paths() == ["a.ipynb"]

    play(scene)


def test_kernels_are_asked_to_park_once_and_live_on(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(jupyter: Jupyter) -> None:
        parks = await jupyter.start("parks", PARKING.replace("ANSWER", f"'parked': {2 * GIB}"))
        refuses = await jupyter.start("refuses", PARKING.replace("ANSWER", r"'refused': 'no \x1b room'"))
        cannot = await jupyter.start("cannot")
        for kernel in (parks, refuses, cannot):
            jupyter.rest(kernel)
        await jupyter.pass_by(AFTER + 10)
        assert jupyter.warned() == set()
        asked = jupyter.folder / "asked"
        assert asked.read_text() == "xx"
        await jupyter.pass_by(3 * AFTER)
        assert asked.read_text() == "xx"
        assert len(told(caplog)) == 3
        await jupyter.run(parks, "1")
        await jupyter.pass_by(10)
        jupyter.rest(parks)
        await jupyter.pass_by(2 * AFTER)
        assert asked.read_text() == "xxx"
        assert await jupyter.paths() == ["cannot.ipynb", "parks.ipynb", "refuses.ipynb"]
        lines = sorted(line.partition(": ")[2] for line in told(caplog))
        assert lines[0].startswith(f"left alone: kernel {min(cannot, refuses)}")
        assert sum(line.endswith(": no � room") for line in lines) == 1
        assert (
            sum(line.endswith(": it cannot park, because it has not loaded gpu_magic") for line in lines) == 1
        )
        assert sum(line.startswith(f"parked 2.0 GiB of kernel {parks}, parks.ipynb") for line in lines) == 2

    play(scene, PARKS)


@pytest.mark.parametrize("answer", ["'parked': 'all'", "'parked': -1", "'refused': 7", "'other': 0"])
def test_an_answer_that_is_none_is_no_parking(play: Callable[..., None], answer: str) -> None:
    async def scene(jupyter: Jupyter) -> None:
        kernel = await jupyter.start("a", PARKING.replace("ANSWER", answer))
        found = await ask_to_park(jupyter.kernel_manager.get_kernel(kernel))
        assert found == Refused("it cannot park, because it has not loaded gpu_magic")

    play(scene)


def test_a_kernel_that_does_not_answer_is_left_alone(play: Callable[..., None]) -> None:
    async def scene(jupyter: Jupyter) -> None:
        silent = PARKING.replace("comm.send({ANSWER})", "return")
        kernel = await jupyter.start("a", silent)
        found = await ask_to_park(jupyter.kernel_manager.get_kernel(kernel), patience=2)
        assert found == Refused("it did not answer within 2 s")

    play(scene)
