"""Makes a cluster of engines that run already, on any hosts: each gets its GPUs and its rank."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any

from gpu_magic.engines.activity import Activity
from gpu_magic.engines.asking import call
from gpu_magic.engines.cluster import Cluster
from gpu_magic.engines.division import Allotted, divide
from gpu_magic.engines.engine import Engine
from gpu_magic.engines.introduction import introduce, settle, too_late, version
from gpu_magic.engines.ranks import LOCAL, Meeting, rank_variables
from gpu_magic.errors import ClusterError
from gpu_magic.launching.ports import free_ports
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpu_magic.devices.model import Device
    from gpu_magic.engines.asking import Answers
    from gpu_magic.engines.introduction import Introduction
    from gpu_magic.engines.starter import Starter

__all__ = ["join"]

_ANSWER = 60.0  # seconds that engines may take to import gpu_magic and read their machines
_ENDING = 5.0  # seconds that a call may take to end, and the controller to learn of it


def join(client: Any, starter: Starter) -> Cluster:
    """Divide the GPUs of each host among its engines, tell the engines, and return them as a cluster.

    Parameters
    ----------
    client
        ipyparallel's, with engines.
    starter
        Who has started them.

    Raises
    ------
    ClusterError
        One line that says which engine can't be used, on which host; nothing was changed in any.

    """
    numbers = sorted(client.ids)
    if not numbers:
        raise ClusterError("This client has no engines: start some, or wait for them.")
    if busy := _busy(client):
        raise ClusterError(f"{_engines(busy)} busy: wait until all are idle, and try again.")
    known = _introduced(client, numbers)
    shares = divide([Allotted(number, one.host, one.devices) for number, one in known.items()])
    for number, devices in shares.items():
        _check_change(number, known[number], devices)
    _settle(client, known, shares)
    has_hosts = len({one.host for one in known.values()}) > 1
    engines = [
        Engine(number, shares[number], one.host, one.process, one.is_simulated, has_hosts)
        for number, one in known.items()
    ]
    return Cluster(client, engines, starter)


def _busy(client: Any) -> list[int]:
    activity, until = Activity(client), time.monotonic() + _ENDING
    try:
        while (busy := activity.busy()) and time.monotonic() < until:
            time.sleep(0.05)
        return sorted(busy)
    finally:
        activity.stop()


def _introduced(client: Any, numbers: Sequence[int]) -> dict[int, Introduction]:
    """Ask engines what they are."""
    answers = call(client, introduce, dict.fromkeys(numbers, ()), _ANSWER)
    if answers.errors:
        number, error = next(iter(answers.errors.items()))
        where = f"engine {number} on {_host_of(client, number)}"
        raise ClusterError(
            f"gpu_magic can't be used in {where} ({error}): install {version()} for the Python there."
        )
    _check_all(answers, "answered")
    for number, one in answers.results.items():
        if one.version != version():
            raise ClusterError(
                f"Engine {number} on {one.host} has gpu_magic {one.version}, and this process {version()}: "
                "install the same there."
            )
        if one.problem:
            raise ClusterError(f"Engine {number} on {one.host}: {one.problem}")
    return {number: answers.results[number] for number in numbers}


def _host_of(client: Any, number: int) -> str:
    """Return the name of an engine's machine, without gpu_magic there."""
    name: str = call(client, socket.gethostname, {number: ()}, _ANSWER).results.get(number, "its host")
    return name


def _check_change(number: int, one: Introduction, devices: Sequence[Device]) -> None:
    """Check that an engine can have its devices: CUDA and ROCm read their variables once."""
    if one.guard.can_change or one.guard.uuids == tuple(str(device.uuid) for device in devices):
        return
    labels = listed(device.label for device in devices)
    raise ClusterError(
        f"Engine {number} on {one.host} can't be given {labels}: {too_late(one.guard)}. Start it anew, "
        f"and let it have its GPU before anything starts {one.guard.runtime} there."
    )


def _settle(client: Any, known: Mapping[int, Introduction], shares: Mapping[int, Sequence[Device]]) -> None:
    """Tell engines their GPUs and their ranks."""
    addresses = _addresses([one.host for one in known.values()])
    speakers: dict[str, int] = {}  # an engine of each host, which finds free ports there
    for number, address in zip(known, addresses, strict=True):
        speakers.setdefault(address, number)
    counts = {
        speaker: (addresses.count(address) + 2 * (address == addresses[0]),)
        for address, speaker in speakers.items()
    }
    ports = call(client, free_ports, counts, _ANSWER)
    _check_all(ports, "named free ports")
    meeting = Meeting.of(addresses, {address: ports.results[one] for address, one in speakers.items()})
    arguments = {}
    for rank, number in enumerate(known):
        uuids = [str(device.uuid) for device in shares[number]]
        index = {"GPU_MAGIC_INDEX": str(rank), "GPU_MAGIC_COUNT": str(len(known))}
        arguments[number] = uuids, {**index, **rank_variables(rank, meeting)}
    done = call(client, settle, arguments, _ANSWER)
    _check_all(done, "taken its GPU")
    for number, why in done.results.items():
        if why:
            raise ClusterError(f"Engine {number} on {known[number].host} can't have its GPU: {why}.")


def _addresses(hosts: Sequence[str]) -> list[str]:
    """Return each rank's address for the others."""
    return [LOCAL] * len(hosts) if len(set(hosts)) == 1 else list(hosts)


def _check_all(answers: Answers[Any], done: str) -> None:
    """Check that all engines have answered."""
    for number, error in answers.errors.items():
        raise ClusterError(f"Engine {number} has not {done}: {error}.")
    if answers.silent:
        raise ClusterError(f"Engine {answers.silent[0]} has not {done} within {_ANSWER:.0f} s.")


def _engines(numbers: Sequence[int]) -> str:
    verb = "Engine {} is" if len(numbers) == 1 else "Engines {} are"
    return verb.format(listed(map(str, numbers)))
