"""What an open panel costs a kernel and the wire, beside a table that a thread writes into an HTML widget."""

from __future__ import annotations

import json
import subprocess
from ast import literal_eval
from statistics import median
from typing import TYPE_CHECKING, Any

from jupyter_client.manager import start_new_kernel

from benchmarks.machine import driver_libraries, sleepers
from benchmarks.measure import Table, clean_environment

if TYPE_CHECKING:
    from collections.abc import Mapping

TICKS = 3600
OURS, THEIRS = "gpu_magic's panel", "nvitop into an HTML widget"
# An hour of ticks, one every few milliseconds, so that the thread that writes to the sockets keeps up.
LOOP = """
import gc, resource, time
def measure(tick, ticks):
    def memory():
        gc.collect()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize() / (1 << 20)
    for _ in range(200):
        tick()
        time.sleep(0.002)
    before, objects, begun = memory(), len(gc.get_objects()), time.process_time()
    for _ in range(ticks):
        tick()
        time.sleep(0.002)
    took = time.process_time() - begun
    return took / ticks, memory() - before, len(gc.get_objects()) - objects
"""
PANEL = """
import gpu_magic
panel = gpu_magic.panel()
panel.state._sampler.stop()
panel.state.receive(panel, {{"type": "look", "view": "v", "visibility": "watched", "open": []}})
panel.state._sampler.stop()
answer = measure(panel.state.tick, {ticks})
"""
# As people write it: a snapshot of each GPU and its processes, shown once a second.
HTML = """
import ipywidgets, nvitop
from html import escape
widget = ipywidgets.HTML()
devices = nvitop.Device.all()
def tick():
    rows = []
    for device in devices:
        with device.oneshot():
            running = device.processes().values()
            users = ", ".join(f"{{p.username()}}: {{p.name()}}, {{p.gpu_memory_human()}}" for p in running)
            figures = device.memory_used_human(), device.gpu_utilization(), device.temperature()
            cells = (device.name(), *figures, device.power_usage(), users)
        rows.append("<tr>" + "".join(f"<td>{{escape(str(cell))}}</td>" for cell in cells) + "</tr>")
    widget.value = f"<table>{{''.join(rows)}}</table>"
answer = measure(tick, {ticks})
"""


def run() -> list[Table]:
    with sleepers() as pids, driver_libraries(pids) as variables:
        moving = {**variables, "INSTANT_MOVES": "1"}
        (ours, grown, objects), sizes = _measure(PANEL, moving, TICKS)
        (theirs, *_), their_sizes = _measure(HTML, moving, TICKS // 6)
    title = "The kernel's processor time for a tick: 8 GPUs, 4 processes each, all figures change"
    cost = Table.of(title, {THEIRS: theirs, OURS: ours}, {OURS: 0.75})
    wire, size = (
        Table("What a tick sends, with all that Jupyter adds", "{:.1f} kB".format),
        median(sizes) / 1000,
    )
    wire.add(THEIRS, median(their_sizes) / 1000)
    wire.add(OURS, size, most=5)
    left = Table(f"What is left of {TICKS} ticks", "{:.0f}".format)
    left.add("objects that Python has more", objects, most=10)
    left.add("MiB more in memory", grown, most=2)
    return [cost, wire, left]


def _measure(code: str, variables: Mapping[str, str], ticks: int) -> tuple[Any, list[int]]:
    """Run ticks in a kernel; return what it says of them, and the bytes of each message that it sent."""
    manager, client = start_new_kernel(
        env=clean_environment(variables),
        extra_arguments=["--HistoryManager.enabled=False"],
        stderr=subprocess.DEVNULL,
    )
    try:
        request = client.execute(LOOP + code.format(ticks=ticks), user_expressions={"answer": "answer"})
        sizes = _sizes(client)
        while (reply := client.get_shell_msg(timeout=300))["parent_header"].get("msg_id") != request:
            pass
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return literal_eval(reply["content"]["user_expressions"]["answer"]["data"]["text/plain"]), sizes


def _sizes(client: Any) -> list[int]:
    """Return the bytes of the messages of widgets, until the kernel is idle."""
    sizes = []
    socket = client.iopub_channel.socket
    while socket.poll(120_000):
        frames = socket.recv_multipart()
        place = frames.index(b"<IDS|MSG>")
        header, content = json.loads(frames[place + 2]), json.loads(frames[place + 5])
        if header["msg_type"] == "comm_msg":
            sizes.append(sum(map(len, frames)))
        elif header["msg_type"] == "status" and content["execution_state"] == "idle" and sizes:
            return sizes
    raise AssertionError("the kernel has said nothing for two minutes")
