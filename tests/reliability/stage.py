"""A kernel on a machine with a fault, and what has to hold after each cell that is typed there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.conftest import LIMIT
from tests.kernel.conftest import Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.kernel.conftest import Kernel
    from tests.reliability.faults import Variant

__all__ = ["SETUP", "Look", "Stage", "cuda_sees"]

SETUP = """
import tests.reliability.inside as _inside
import gpu_magic, os, tempfile, torch
from gpu_magic.devices.machine_reader import MachineReader as _MachineReader
from gpu_magic.process.session import current as _current
_current().reader = _MachineReader(starting=0.0)  # a driver that never starts is given up at once, and not after a minute
%gpus reset
number, words, x = 7, ["some", "words"], torch.arange(8)
batch = {"x": x}
_TOLD = [f"GPU_MAGIC_TEST_{name}" for name in ("FULL", "READ_ONLY", "HIDDEN", "CLOCK")]
_places = ":".join(os.path.realpath(place) for place in (os.path.expanduser("~"), tempfile.gettempdir(), os.environ["GPU_MAGIC_CLAIMS"]))
_inside.begin()
"""
# It runs with the libraries that the kernel has.
_CUDA_SEES = """
import ctypes, json, uuid
def see():
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    if error := cuda.cuInit(0):
        return error
    count, raw, found = ctypes.c_int(), (ctypes.c_ubyte * 16)(), []
    cuda.cuDeviceGetCount(ctypes.byref(count))
    for ordinal in range(count.value):
        cuda.cuDeviceGetUuid_v2(ctypes.byref(raw), ordinal)
        found.append(f"GPU-{uuid.UUID(bytes=bytes(raw))}")
    return found
print(json.dumps(see()))
"""
_NAMES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
_OURS = re.compile(r"gpu_magic/[\w/]+\.py|Traceback \(most recent call last\)")


@dataclass(frozen=True)
class Look:
    """What the kernel's process is like at one moment."""

    environment: dict[str, str]
    variables: dict[str, str]
    raised: list[str]


class Stage:
    """Where faces play.

    Parameters
    ----------
    kernel
        With the extension loaded, and with SETUP.
    variant
        The fault.
    at_start
        The kernel as it was before anything was chosen.
    is_last, is_alone
        Whether it is the last variant of its fault, and whether there is no other.

    """

    def __init__(
        self, kernel: Kernel, variant: Variant, at_start: Look, *, is_last: bool, is_alone: bool
    ) -> None:
        self.kernel, self.variant = kernel, variant
        self.is_last, self.is_alone = is_last, is_alone
        self._at_start = at_start
        self.now = at_start
        self._key = ""
        self.said: list[str] = []
        self.refused = False

    @classmethod
    def at(cls, kernel: Kernel, variant: Variant, *, is_last: bool, is_alone: bool) -> Stage:
        """Return the stage of a kernel in which nothing is chosen."""
        found = json.loads(kernel.run("_inside.tell(globals())").stdout)
        return cls(kernel, variant, Look(**found), is_last=is_last, is_alone=is_alone)

    def begin(self) -> None:
        """Forget what the last face has said."""
        self.now = self.look()
        self.said, self.refused = [], False

    def look(self) -> Look:
        """Look at the kernel's process."""
        reply = self.kernel.run("_inside.tell(globals())")
        assert reply.status == "ok", reply.traceback
        assert reply.stdout, reply
        # IPython prints that it can't write its history, before or after.
        (told,) = (line for line in reply.stdout.splitlines() if line.startswith("{"))
        return Look(**json.loads(told))

    def type(self, code: str, asks: Sequence[int] | int | str = ()) -> Reply:
        """Run a cell, and check what has to hold after it.

        Parameters
        ----------
        code
            The cell.
        asks
            The GPUs that it chooses, by their indices; or how many `auto` is to pick, or "reset".

        """
        reply = self.kernel.run(code)
        self.check(code, reply, asks)
        return reply

    def open_panel(self) -> None:
        """Show a panel."""
        reply = self.kernel.run("_panel = gpu_magic.panel(); print(_panel.model_id)")
        self._key, self._heard = reply.stdout.strip(), 0  # the number of what was said last
        self.check("gpu_magic.panel()", replace(reply, stdout=""))

    def click(self, content: dict[str, Any], asks: Sequence[int] = ()) -> None:
        """Send what a page sends, and check what has to hold once the kernel has read it."""
        client = self.kernel.client
        data = {"comm_id": self._key, "data": {"method": "custom", "content": content}}
        sent = client.session.send(client.shell_channel.socket, "comm_msg", data)
        reply = Reply("ok")
        is_read, is_answered = False, not asks
        while not (is_read and is_answered):
            message = client.get_iopub_msg(timeout=LIMIT)
            about = message["content"]
            if message["msg_type"] == "status":
                is_ours = message["parent_header"].get("msg_id") == sent["header"]["msg_id"]
                is_read |= is_ours and about["execution_state"] == "idle"
            elif message["msg_type"] == "stream":
                reply.stderr += about["text"]
            elif message["msg_type"] == "comm_msg" and about["comm_id"] == self._key:
                told = about["data"].get("content") or {}
                said = told["state"]["said"] if told.get("type") == "state" else {"number": 0}
                if said["number"] > self._heard and said["text"]:
                    self._heard = said["number"]
                    reply.stdout += f"{said['text']}\n"
                    reply.status = "ok" if said["kind"] != "error" else "error"
                    is_answered = True
        self.check(f"click {content}", reply, asks)

    def close_panel(self) -> None:
        """Close the panel, and have its thread end."""
        self.check("close", self.kernel.run("_panel.close()"))

    def check(self, code: str, reply: Reply, asks: Sequence[int] | int | str = ()) -> None:
        """Check what has to hold after a cell."""
        before, self.now = self.now, self.look()
        shown = "\n".join(
            filter(None, (reply.stderr, reply.stdout, reply.text, reply.updated, *reply.errors))
        )
        self.said += shown.splitlines()
        self.refused |= reply.status != "ok"
        what = f"{self.variant.name} {code!r} said:\n{shown}\n{reply.traceback}"
        assert not _OURS.search(shown + reply.traceback), what
        assert not self.now.raised, f"{what}\n" + "\n".join(self.now.raised)
        assert self.now.variables == before.variables, what
        if asks == "reset" and reply.status == "ok":
            assert _without_told(self.now) == _without_told(self._at_start), what
        elif asks != () and reply.status == "ok" and "cuda:0 = " in shown:
            self._check_choice(before, asks, what)
        else:
            assert self.now.environment == before.environment, what

    def _check_choice(self, before: Look, asks: Sequence[int] | int | str, what: str) -> None:
        """Check that CUDA sees what was chosen, and that no other variable has changed."""
        others = [
            {name: value for name, value in look.environment.items() if name not in _NAMES}
            for look in (before, self.now)
        ]
        assert others[0] == others[1], what
        sees = cuda_sees(self.now.environment)
        if sees is None:  # there is no CUDA to ask
            return
        cards = self.variant.driver.cards
        if isinstance(asks, int):
            assert isinstance(sees, list), (sees, what)
            assert len(sees) == asks, (sees, what)
            assert not {cards[index].uuid for index in self.variant.unfit} & set(sees), (sees, what)
        else:
            wanted: Any = [cards[int(index)].uuid for index in asks]
            assert sees == wanted, (sees, what)


def cuda_sees(environment: dict[str, str]) -> list[str] | int | None:
    """Return the UUIDs of the GPUs that CUDA sees where it is started so, or its error; None: there is none."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _CUDA_SEES],
        env=environment,
        check=True,
        capture_output=True,
        timeout=LIMIT,
    )
    found: list[str] | int | None = json.loads(done.stdout)
    return found


def _without_told(look: Look) -> dict[str, str]:
    """Return the environment without what tells the system to be in trouble."""
    return {name: value for name, value in look.environment.items() if not name.startswith("GPU_MAGIC_TEST_")}
