"""Whether NVIDIA's device files are there, and may be opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_magic.diagnosis.finding import Finding
from gpu_magic.diagnosis.known import system
from gpu_magic.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_magic.diagnosis.facts import DeviceFile, Facts, System

__all__ = ["check_device_files", "refused", "start_anew"]

_CONTROL, _MEMORY = "/dev/nvidiactl", "/dev/nvidia-uvm"


def check_device_files(facts: Facts) -> Iterator[Finding]:
    where = system(facts)
    if where is None or where.is_wsl or not where.devices:
        return
    if any(file.error == "EPERM" and file.is_permitted for file in where.devices):
        yield _taken_away(where)
    elif closed := [file for file in where.devices if _is_closed(file)]:
        yield _closed(closed, where)
    gone = [file.path for file in where.devices if file.error in ("ENXIO", "ENODEV")]
    if gone:
        what = f"{listed(gone)} is there, and no driver behind it: NVIDIA's kernel module is not loaded."
        yield Finding("wrong", "device files", what, mend="sudo modprobe nvidia && sudo modprobe nvidia-uvm")
    paths = {file.path for file in where.devices}
    if _CONTROL in paths and _MEMORY not in paths and not gone and not where.makes_devices:
        yield Finding(
            "wrong",
            "device files",
            f"{_MEMORY} is missing, without which CUDA does not start.",
            'torch.cuda.is_available() is False, or CUDA says "unknown error" (999), though nvidia-smi works.'
            + " A container needs the command on its host, and has then to be started anew."
            * bool(where.container),
            "sudo nvidia-modprobe -c 0 -u",
        )


def refused(where: System) -> bool:
    """Return whether this user can't open the files that every program with CUDA opens."""
    return any(
        _is_closed(file) or file.error == "EPERM" for file in where.devices if not file.path[-1].isdigit()
    )


def start_anew(where: System) -> str:
    """Return how a container is started anew, from its host."""
    mends = {"kubernetes": "kubectl delete pod …", "podman": "podman restart …"}
    return mends.get(where.container, "docker restart …")


def _is_closed(file: DeviceFile) -> bool:
    return not file.is_permitted or file.error == "EACCES"


def _closed(files: list[DeviceFile], where: System) -> Finding:
    paths = [file.path for file in files]
    shown = listed(paths) if len(paths) < 4 else f"{paths[0]} and {len(paths) - 1} more device files"  # noqa: PLR2004
    group = next((file.group for file in files if file.group), "")
    what = f"This user may not open {shown}."
    if group:
        return Finding(
            "wrong",
            "device files",
            what,
            f"They are open to the group {group}; it is joined at the next login.",
            f'sudo usermod -aG {group} "$USER"',
        )
    of_gpus = {file.path for file in where.devices if file.path[-1].isdigit()}
    if of_gpus > set(paths):  # no control file is closed, and a GPU's own is open
        meaning = "A scheduler closes those of GPUs that others were given: CUDA leaves them out."
        return Finding("worth knowing", "device files", what, meaning)
    meaning = "CUDA sees no GPU. An administrator can open them; a scheduler may have closed them on purpose."
    return Finding("wrong", "device files", what, meaning, "sudo chmod a+rw /dev/nvidia*")


def _taken_away(where: System) -> Finding:
    what = "The system refuses NVIDIA's device files, though their permissions are open (EPERM)."
    if not where.container:
        return Finding(
            "wrong", "device files", what, "A cgroup of this session, a job's for example, has no GPU."
        )
    meaning = (
        "This container has lost its GPUs: `systemctl daemon-reload` on its host does that "
        "(nvidia-docker #1730). It has them again once it is started anew, from its host:"
    )
    return Finding("wrong", "device files", what, meaning, start_anew(where))
