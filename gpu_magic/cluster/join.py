"""Uses engines that ipyparallel has started on any hosts, and gives each engine its GPUs and its rank.

`report_gpus` and `apply_gpus` run in the engines.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from itertools import groupby
from typing import TYPE_CHECKING, Any

import ipyparallel

from gpu_magic.cluster.cluster import Engine, as_line, busy_engines
from gpu_magic.cluster.engine import LOCAL, rank_variables, tell_jax
from gpu_magic.devices.model import Gpu
from gpu_magic.errors import ChoiceError, ClusterError
from gpu_magic.gpus.apply import apply
from gpu_magic.launch.process import free_ports
from gpu_magic.process.drivers import State
from gpu_magic.process.find import usable_devices
from gpu_magic.process.given import Given
from gpu_magic.process.mask import names_of
from gpu_magic.process.session import current
from gpu_magic.process.view import read_machine
from gpu_magic.text import counted, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpu_magic.devices.model import Device

__all__ = ["apply_gpus", "divide", "join", "report_gpus"]

_ANSWER = 60.0  # seconds that engines may take to import gpu_magic and read their machines
_ENDING = 5.0  # seconds until a call has ended and the controller knows that
_AGAIN = 0.05  # seconds between two checks


def join(client: Any) -> list[Engine]:
    """Divide the GPUs of each host among its engines. If one engine cannot be used, no engine changes."""
    if not client.ids:
        raise ClusterError("This client has no engines. Start some, or wait for them.")
    until = time.monotonic() + _ENDING
    while busy := sorted(busy_engines(client)):
        if time.monotonic() >= until:
            raise ClusterError(f"Engine {busy[0]} is busy. Try again when all are idle.")
        time.sleep(_AGAIN)
    given = _ask(client, report_gpus, {number: (number, _version()) for number in client.ids})
    engines = divide(given.values())
    if len({engine.host for engine in engines}) == 1:
        engines = [engine._replace(host="") for engine in engines]
    hosts = [engine.host or LOCAL for engine in engines]  # where the engines reach each other
    speakers = {host: engine.number for host, engine in zip(hosts, engines, strict=True)}
    ports = _ask(client, free_ports, {number: (hosts.count(host) + 2,) for host, number in speakers.items()})
    ranks = rank_variables(hosts, {host: ports[number] for host, number in speakers.items()})
    for only_try in True, False:
        changes = {
            engine.number: (engine.number, [str(device.uuid) for device in engine.devices], rank, only_try)
            for engine, rank in zip(engines, ranks, strict=True)
        }
        _ask(client, apply_gpus, changes)
    return engines


def divide(engines: Iterable[Engine]) -> list[Engine]:
    """Return the engines, each with its share of the devices that it was given, and no device twice.

    Engines of one host that were given the same devices get contiguous shares, in the order of their numbers.
    If there is a remainder, the first engines get one device more. Engines that were given different devices
    keep them. A process can use only one MIG instance and no other GPU, so engines get instances only if
    there are fewer whole GPUs than engines, and then each engine gets one device.
    """
    shares: list[Engine] = []
    by_place = sorted(engines, key=lambda one: (one.host, one.number))
    for host, there in groupby(by_place, key=lambda one: one.host):
        groups: dict[frozenset[str], list[Engine]] = {}
        for engine in there:
            groups.setdefault(frozenset(str(device.uuid) for device in engine.devices), []).append(engine)
        for group in groups.values():
            count = len(group)
            devices: tuple[Device, ...] = tuple(one for one in group[0].devices if isinstance(one, Gpu))
            if len(devices) < count and len(devices) < len(group[0].devices):
                devices = group[0].devices[:count]
            if len(devices) < count:
                there_are = f"{counted(count, 'engine')} and only {counted(len(devices), 'GPU')}"
                raise ClusterError(f"{host} has {there_are}. Each engine needs one.")
            size, more = divmod(len(devices), count)
            for place, engine in enumerate(group):
                first = place * size + min(place, more)
                shares.append(engine._replace(devices=devices[first : first + size + (place < more)]))
        if len(frozenset[str]().union(*groups)) < sum(map(len, groups)):
            variable = names_of(devices[0].vendor if isinstance(devices[0], Gpu) else "nvidia")[0]
            raise ClusterError(
                f"The GPUs of the engines on {host} overlap. Give all engines the same {variable}, or each "
                "engine its own GPUs."
            )
    return sorted(shares, key=lambda one: one.number)


def _ask(client: Any, function: Callable[..., Any], given: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
    """Call a function in engines. Return the results by engine number. Raise an engine's ClusterError."""
    deadline = time.monotonic() + _ANSWER
    replies = {number: client[number].apply_async(function, *some) for number, some in given.items()}
    found = {}
    for number, reply in replies.items():
        try:
            found[number] = reply.get(max(deadline - time.monotonic(), 0))
        except TimeoutError:
            raise ClusterError(f"Engine {number} did not answer within {_ANSWER:.0f} s.") from None
        except ipyparallel.error.RemoteError as error:
            if error.ename == "ClusterError":
                raise ClusterError(error.evalue) from None
            raise ClusterError(
                f"gpu_magic does not work in engine {number} ({as_line(error)}). Install gpu_magic "
                f"{_version()} there."
            ) from None
    return found


def _version() -> str:
    found: str = sys.modules["gpu_magic"].__version__
    return found


def _host() -> str:
    """Return the name of this engine's machine, which is also its address for other engines."""
    return os.environ.get("GPU_MAGIC_ADDRESS", "").strip() or socket.gethostname()


def report_gpus(number: int, version: str) -> Engine:
    """Return this engine, with the GPUs that it was given. Change nothing."""
    where = f"Engine {number} on {_host()}"
    if version != _version():
        raise ClusterError(f"{where} has gpu_magic {_version()}. Install {version}, as in this process.")
    session = current()
    inventory = read_machine(session)
    try:
        pool = Given(inventory, session.inherited, session.grant).pool
    except ChoiceError as error:
        raise ClusterError(f"{where}: {inventory.problem or error}") from None
    if inventory.problem:
        raise ClusterError(f"{where}: {inventory.problem}")
    return Engine(number, usable_devices(pool), _host(), bool(inventory.simulated))


def apply_gpus(number: int, uuids: Sequence[str], variables: Mapping[str, str], only_try: bool) -> None:
    """Make these GPUs visible in this engine, in the order of `cuda:i`, and set its rank."""
    session = current()
    try:
        choice = apply(session, ",".join(uuids), dry_run=only_try)
    except ChoiceError as error:
        raise ClusterError(f"Engine {number} on {_host()} cannot have its GPU: {error}") from None
    if choice.too_late:
        guard, labels = choice.too_late.guard, listed(device.label for device in choice.devices)
        why = str(guard)
        if guard.state is State.FROZEN:
            why = f"{guard.runtime} {guard.seen} there and keeps {guard.frozen_to}"
        raise ClusterError(
            f"Engine {number} on {_host()} cannot use {labels}: {why}. Restart it, and give it its GPU "
            f"before anything starts {guard.runtime} there."
        )
    if not only_try:
        for name, value in variables.items():
            session.environment.set(name, value)
        tell_jax()
