"""What an open panel costs a kernel and the wire, beside a table that a thread writes into an HTML widget."""

from __future__ import annotations

import json
from importlib.util import find_spec
from queue import Empty
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks import dashboard
from benchmarks.kernel import start_kernel
from benchmarks.machine import driver_libraries, sleepers
from benchmarks.report import Row, Table, calls, kilobytes
from benchmarks.timing import clean_environment

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["run"]

TICKS = 3600
OURS, THEIRS = "gpu_magic's panel", "nvitop into an HTML widget"
DASHBOARD = "jupyterlab-nvdashboard: utilization and memory, in its server"
# An hour of ticks, one every few milliseconds, so that the thread that writes to the sockets keeps up.
LOOP = """
import gc, json, resource, time
def measure(tick, ticks):
    def memory():
        gc.collect()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    for _ in range(200):
        tick()
        time.sleep(0.002)
    before, objects, begun = memory(), len(gc.get_objects()), time.process_time()
    for _ in range(ticks):
        tick()
        time.sleep(0.002)
    idle = time.process_time()
    took = idle - begun
    return {"seconds": took / ticks, "bytes": memory() - before, "objects": len(gc.get_objects()) - objects}
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
        ours, sizes = _measure(PANEL, moving, TICKS)
        theirs, their_sizes = _measure(HTML, moving, TICKS // 6)
        has_dashboard = find_spec("jupyterlab_nvdashboard") is not None
        dashboards = [dashboard.measure(moving, TICKS // 6)] if has_dashboard else []
    note = (
        "One core is 1 s a second; 8 GPUs with 4 processes each, all figures of all GPUs change at each tick."
    )
    cost = [
        Row(OURS, ours["seconds"], "2.5 ms", ours["seconds"] < 2.5e-3),
        Row(THEIRS, theirs["seconds"]),
        *(Row(DASHBOARD, seconds) for seconds, _ in dashboards),
    ]
    wire = [
        Row(OURS, median(sizes), "4 kB", median(sizes) < 4000),
        Row(THEIRS, median(their_sizes)),
        *(Row(DASHBOARD, size) for _, size in dashboards),
    ]
    grown = [
        Row("objects that Python has more", ours["objects"], "10", ours["objects"] <= 10),
        Row("MiB more in memory", ours["bytes"] / (1 << 20), "2", ours["bytes"] < 2 << 20),
    ]
    return [
        Table("The kernel's processor time for a tick", cost, OURS, notes=[note]),
        Table("What a tick sends, with all that Jupyter adds", wire, OURS, write=kilobytes),
        Table(f"What is left of {TICKS} ticks", grown, write=calls),
    ]


def _measure(code: str, variables: Mapping[str, str], ticks: int) -> tuple[dict[str, Any], list[int]]:
    """Run ticks in a kernel; return what it says of them, and the bytes of each message that it sent."""
    manager, client = start_kernel(clean_environment(variables), "--HistoryManager.enabled=False")
    try:
        request = client.execute(
            LOOP + code.format(ticks=ticks), user_expressions={"answer": "json.dumps(answer)"}
        )
        sizes = _sizes(client)
        while (reply := client.get_shell_msg(timeout=300))["parent_header"].get("msg_id") != request:
            pass
        answer = reply["content"]["user_expressions"]["answer"]["data"]["text/plain"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return json.loads(answer.strip("'")), sizes


def _sizes(client: Any) -> list[int]:
    """Return the bytes of the messages of widgets, until the kernel is idle."""
    sizes = []
    socket = client.iopub_channel.socket
    while True:
        if not socket.poll(120_000):
            raise Empty
        frames = socket.recv_multipart()
        place = frames.index(b"<IDS|MSG>")
        header, content = json.loads(frames[place + 2]), json.loads(frames[place + 5])
        if header["msg_type"] == "comm_msg":
            sizes.append(sum(map(len, frames)))
        elif header["msg_type"] == "status" and content["execution_state"] == "idle" and sizes:
            return sizes
