"""The checks: functions `check_…` that yield findings about the facts, in the order of the output."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from gpu_magic.devices.model import UNKNOWN, parts
from gpu_magic.devices.problems import Cause, GpuCause
from gpu_magic.devices.processes import ended_text
from gpu_magic.doctor.facts import Build, Facts, Finding, Kernel
from gpu_magic.doctor.sources import major
from gpu_magic.errors import ChoiceError
from gpu_magic.panel.front_end import missing_there
from gpu_magic.process.drivers import State
from gpu_magic.process.find import find, mig_instances
from gpu_magic.process.guard import runtime_of
from gpu_magic.process.mask import HIP, MASK, PCI, ROCR, Flaw, Variables
from gpu_magic.process.visible import in_force, read_visible, show
from gpu_magic.text import age_text, bytes_text, end_of_path, listed, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gpu_magic.devices.model import Device, Gpu, GpuProcess, Inventory
    from gpu_magic.devices.problems import Problem

    Check = Callable[[Facts], Iterable[Finding]]

__all__ = ["CHECKS"]

_REBOOT, _OPEN = "sudo reboot", "sudo chmod a+rw /dev/nvidia*"
_FIXES = {
    Cause.OUTDATED: _REBOOT,
    Cause.HUNG: _REBOOT,
    Cause.REFUSED: _OPEN,
    Cause.NOT_LOADED: "sudo modprobe nvidia",
    Cause.NO_GPU: "srun --gres=gpu:1 …",
}
_LONGEST_PATH = 120  # characters
_GUIDE = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide"
# How to start a container with GPUs, how to start it with all parts of the driver, and how to restart it.
_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES=compute,utility"
_DOCKER = ("docker run --gpus all …", f"docker run --gpus all -e {_CAPABILITIES} …", "docker restart …")
_PODMAN = "podman run --device nvidia.com/gpu=all"
_KUBERNETES = "env: [{name: NVIDIA_DRIVER_CAPABILITIES, value: compute,utility}]"
_CONTAINERS = {
    "podman": (f"{_PODMAN} …", f"{_PODMAN} -e {_CAPABILITIES} …", "podman restart …"),
    "apptainer": ("apptainer exec --nv …",) * 3,
    "kubernetes": ("resources: {limits: {nvidia.com/gpu: 1}}", _KUBERNETES, "kubectl delete pod …"),
}
_LOST = "This container has probably lost its GPUs. On its host:"
_MENUS = {"Colab": "Runtime > Change runtime type > T4 GPU", "Kaggle": "Settings > Accelerator > GPU T4 x2"}
_wrong, _aside = partial(Finding, "wrong"), partial(Finding, "worth knowing")


def check_device_files(facts: Facts) -> Iterator[Finding]:
    where, about = facts.where, "device files"
    paths = {file.path for file in where.devices}
    closed = [file.path for file in where.devices if file.is_closed]
    if any(file.error == "EPERM" and not file.is_closed for file in where.devices):
        what = "The system refuses access to NVIDIA's device files despite open permissions (EPERM)."
        # `systemctl daemon-reload` on the host causes this error: nvidia-docker #1730.
        again = _CONTAINERS.get(where.container, _DOCKER)[2] if where.container else ""
        meaning = "This container has lost its GPUs. On its host:" if again else "A job may have no GPU."
        yield _wrong(about, what, meaning, again)
    elif closed:
        shown = [closed[0], f"{len(closed) - 1} more device files"] if closed[3:] else closed
        what = f"You may not open {listed(shown)}."
        if {file.path for file in where.devices if file.is_of_gpu} > set(closed):
            meaning = "A scheduler closes the files of other jobs' GPUs. CUDA leaves these GPUs out."
            yield _aside(about, what, meaning)
        else:
            meaning = "CUDA sees no GPU. Unless a scheduler closed the files, an administrator can open them:"
            yield _wrong(about, what, meaning, _OPEN)
    if "/dev/nvidiactl" in paths and not (where.makes_devices or "/dev/nvidia-uvm" in paths):
        what = "/dev/nvidia-uvm is missing. CUDA does not start without it."
        meaning = f'CUDA fails with "unknown error" (999), but nvidia-smi works. {facts.on_host}'.rstrip()
        yield _wrong(about, what, meaning, "sudo nvidia-modprobe -c 0 -u")


def check_driver(facts: Facts) -> Iterator[Finding]:
    machine, where, packages = facts.machine, facts.where, facts.packages
    if machine is UNKNOWN or machine.simulated:
        return
    if packages is not UNKNOWN and packages.binding_problem:
        what = "Another package of the name pynvml hides NVIDIA's nvidia-ml-py, so no GPU can be read."
        pip = "%pip" if facts.is_ipython else "python -m pip"
        lines = f"{pip} uninstall -y pynvml\n{pip} install --force-reinstall nvidia-ml-py"
        yield _wrong("driver", what, f"Then {facts.restart}.", lines)
        return
    with_all = _CONTAINERS.get(where.container, _DOCKER)[1]
    given = {one.strip() for one in (where.capabilities or "").split(",")} - {""}
    # CDI and Apptainer ignore the variable, so the library must also be missing.
    if where.container and given and not given & {"compute", "all"} and not where.has_cuda:
        what = f"This container has no CUDA driver: NVIDIA_DRIVER_CAPABILITIES={where.capabilities}."
        meaning = 'The capability "compute" brings CUDA, and "utility" brings nvidia-smi.'
        yield _wrong("driver", what, meaning, with_all)
    if machine.others:
        yield _aside("other GPUs", str(machine.others))
    if machine.gpus and machine.limitation:
        meaning = 'CUDA works without it. In a container the driver capability "utility" brings it.'
        yield _aside("driver", f"{machine.limitation.what}.", meaning, with_all)
    elif not machine.gpus and machine.problem and (why := _no_gpu(machine.problem, facts)):
        yield _wrong("driver", *why)


def _no_gpu(problem: Problem, facts: Facts) -> Sequence[str]:
    """Return why no GPU can be read, the effect and the fix. Empty if another check reports the error."""
    where = facts.where
    with_gpus, _, again = _CONTAINERS.get(where.container, _DOCKER)
    if where.kind in _MENUS and not where.devices:
        return f"This notebook has no GPU on {where.kind}.", "", _MENUS[where.kind]
    cause = problem.cause
    if cause is Cause.NO_LIBRARY:
        what, meaning, fix = _no_library(facts)
        return what, f"{problem.amd or ''} {meaning}".strip(), fix
    # Apptainer has the host's libraries.
    if cause is Cause.OUTDATED and where.container not in ("", "apptainer"):
        what = "The driver's libraries in this container have another version than the host's kernel module."
        return what, "If nvidia-smi also fails on the host, reboot the host. Otherwise, on the host:", again
    if cause is Cause.NO_GPU and where.container:
        return "This container was started without GPUs. The NVIDIA driver is there.", "", with_gpus
    if any(file.is_closed or file.error == "EPERM" for file in where.devices if not file.is_of_gpu):
        return ()
    if cause is Cause.CUT_OFF and where.container:
        return f"{problem.what}.", _LOST, again
    fix = _FIXES.get(cause, "")
    return str(problem), facts.on_host if fix else "", fix


def _no_library(facts: Facts) -> Sequence[str]:
    """Return why NVML is missing, the effect and the fix."""
    where = facts.where
    with_gpus, with_all, _ = _CONTAINERS.get(where.container, _DOCKER)
    has_files = any(file.is_of_gpu for file in where.devices)
    has_gpu = bool(where.module) or where.has_nvidia
    if where.kind == "WSL":
        page = "https://docs.nvidia.com/cuda/wsl-user-guide"
        return "This WSL has no NVIDIA driver.", "Install it in Windows, not in Linux:", page
    if where.kind == "Jetson":
        return "This Jetson board has no NVML, so its GPU is not shown.", "CUDA may work. See tegrastats.", ""
    if where.container and has_files:
        what = "This container has device files of GPUs, but no NVML (libnvidia-ml.so.1)."
        return what, 'The driver capability "utility" brings NVML, and "compute" brings CUDA.', with_all
    if where.container:
        host = "Its host has GPUs." if has_gpu else "Whether its host has GPUs is unknown."
        return "This container was started without GPUs.", host, with_gpus
    if has_gpu:
        loaded = f" (kernel module {where.module})" if where.module else ""
        return f"This machine has an NVIDIA GPU, but not the driver's libraries{loaded}.", "", _GUIDE
    seen = " visible" * (where.is_on_bus is UNKNOWN)
    what = f"This machine has no{seen} NVIDIA GPU and no NVIDIA driver."
    try_it = "To simulate GPUs: GPU_MAGIC_SIMULATE=8xA100-80GB"
    return what, f"On a cluster, start a job on a node with GPUs. {try_it}", ""


def check_gpus(facts: Facts) -> Iterator[Finding]:
    seen = UNKNOWN if facts.kernel is UNKNOWN else facts.kernel.seen
    for gpu in facts.nvidia_gpus:
        found = _of_gpu(gpu, facts)
        if found and seen is not UNKNOWN and seen != () and gpu not in seen:
            yield _aside("GPUs", found.problem, "It is not visible in this process.")
        elif found:
            yield found


def _of_gpu(gpu: Gpu, facts: Facts) -> Finding | None:
    """Return why CUDA cannot use a GPU: lost, prohibited, in exclusive use, or MIG without instances."""
    gpus, set_default = facts.nvidia_gpus, f"sudo nvidia-smi -i {gpu.index} -c DEFAULT"
    if gpu.problem and gpu.problem.cause is GpuCause.CUT_OFF and facts.where.container:
        again = _CONTAINERS.get(facts.where.container, _DOCKER)[2]
        return _wrong("GPUs", f"{gpu.label} is {gpu.problem.what}: Unknown Error (999).", _LOST, again)
    if gpu.problem:
        meaning, fix = facts.on_host, _REBOOT
        if not all(one.problem for one in gpus):
            fix = _choose_meant(facts)
            meaning = (
                "While it is visible, CUDA may fail to start, or count the other GPUs differently. A reboot "
                f"or nvidia-smi --gpu-reset brings it back.{' Until then, without it:' * bool(fix)}"
            )
        return _wrong("GPUs", f"{gpu.label} is {gpu.problem}.", meaning, fix)
    mode = f"{gpu.label} is in compute mode {gpu.compute_mode}"
    if gpu.is_prohibited:
        return _wrong("GPUs", f"{mode}: no process can use CUDA on it.", fix=set_default)
    if gpu.is_split and not gpu.mig:
        what = f"{gpu.label} is in MIG mode and has no MIG instance, so CUDA cannot use it."
        fix = f"sudo nvidia-smi mig -i {gpu.index} -cgi 0 -C"
        return _wrong("GPUs", what, "An administrator can make instances. To make one of the whole GPU:", fix)
    what = f"{mode}, and another process uses it, so CUDA cannot use it now."
    if gpu.is_taken is True and gpus[1:]:
        return _aside("GPUs", what, fix=_choose(facts, "auto"))
    if gpu.is_taken is UNKNOWN:
        return _aside("GPUs", f"{mode}, and a process uses it. Only if that is this one can CUDA use it.")
    return _wrong("GPUs", what, fix=set_default) if gpu.is_taken else None


def check_names_of_variables(facts: Facts) -> Iterator[Finding]:
    for name, meant in [] if facts.kernel is UNKNOWN else facts.kernel.misspelt:
        what = f"Nothing reads the variable {shortened(name, 60)}: it is spelled {meant}."
        yield _wrong(meant, what, fix=f"import os; del os.environ[{name!r}]" if facts.is_ipython else "")


def check_choice(facts: Facts) -> Iterator[Finding]:
    kernel = facts.kernel
    if kernel is UNKNOWN or kernel.seen == ():  # `check_visible_devices` reports that no GPU is visible
        return
    for note in kernel.notes:
        if note.flaw is Flaw.REPLACED:
            yield _wrong("choice", str(note))


def check_visible_devices(facts: Facts) -> Iterator[Finding]:
    kernel, machine = facts.kernel, facts.machine
    if kernel is UNKNOWN or machine is UNKNOWN:
        return
    variables, is_frozen = kernel.variables, kernel.guard.state is State.FROZEN
    name, value = MASK, variables.mask
    if machine.vendor == "amd" and variables.rocr == "":  # see `process.visible`
        name, value = ROCR, ""
    elif machine.vendor == "amd" and (variables.hip or value is None):
        name, value = HIP, variables.hip
    # `check_cuda` reports what CUDA has read. `check_gpus` reports how to leave out a lost GPU.
    is_hidden = is_frozen and kernel.guard.is_known and not kernel.guard.devices
    is_lost = any(gpu.problem for gpu in machine.gpus)
    notes = [note for note in kernel.notes if note.flaw is not Flaw.REPLACED]  # see `check_choice`
    for note in notes:
        if note.flaw is Flaw.CONTRADICTION:
            yield _aside(name, str(note))
        elif note.is_past:
            yield _aside(name, str(note), "A later choice has replaced it.")
        elif not (is_hidden and note.flaw is Flaw.CHANGED) and not (is_lost and note.flaw is Flaw.SILENT):
            is_wrong = kernel.seen is not UNKNOWN and not (note.flaw is Flaw.SEVERAL_MIG and kernel.seen)
            what, fix = note.what, _choose_meant(facts)  # in place of the note's own advice
            meaning = "" if fix else "This process was started with it. Only who starts it can change that."
            yield (_wrong if is_wrong else _aside)(name, what, meaning, fix)
    if kernel.seen == () and not notes and not is_frozen:
        shown = f"{name}={shortened(value or '', 60)}" if (value or "").strip() else f"{name} is empty"
        what = f"{shown}: {runtime_of(machine.vendor)} sees no GPU."
        has_changed = kernel.launched.named((name,))[name] != value
        is_wrong, *then = _hidden(kernel, facts, is_usable=not machine.problem, has_changed=has_changed)
        yield (_wrong if is_wrong else _aside)(name, what, *then)


def _hidden(kernel: Kernel, facts: Facts, *, is_usable: bool, has_changed: bool) -> tuple[bool, str, str]:
    """Return whether a variable that hides all GPUs is an error, its effect and the fix."""
    jobs = {"Slurm": "#SBATCH --gres=gpu:1", "LSF": '#BSUB -gpu "num=1"', "PBS": "#PBS -l select=1:ngpus=1"}
    asked = jobs.get(kernel.grant.scheduler, "")
    if not is_usable:  # no GPU can be chosen
        return False, "It also hides the GPUs when they can be read again.", ""
    if kernel.chose_none:
        return False, "You chose this.", _choose(facts, "reset")
    if has_changed:
        return True, "A cell or a module has set it.", _choose(facts, "reset")
    if asked:
        return True, f"{kernel.grant.giver} was given no GPU. To request one in a job:", asked
    return True, "This process was started with it.", _choose(facts, "all", force=kernel.program != "shell")


def _choose(facts: Facts, what: str | tuple[Device, ...], *, force: bool = False) -> str:
    """Return the command that chooses GPUs: `%gpus auto`, `gpu_magic.choose('2,0')`."""
    # A process can use only one MIG instance.
    devices = () if isinstance(what, str) else mig_instances(what)[:1] or what
    wish = what if isinstance(what, str) else ",".join(device.number_text for device in devices)
    if what == "all" and facts.machine is not UNKNOWN and all(gpu.is_split for gpu in facts.machine.gpus):
        wish = "auto"
    if facts.is_ipython:
        is_late = facts.kernel is not UNKNOWN and not facts.kernel.guard.can_change
        restart = " --restart" * (is_late and facts.program == "kernel")
        return f"%gpus {wish}{' --force' * force}{restart}"
    if facts.program == "python":
        return f"gpu_magic.choose({wish!r}{', force=True' * force})"
    if isinstance(what, str) or facts.machine is UNKNOWN:  # in a shell, each text means: hide no GPU
        return f"unset {MASK} {HIP} {ROCR}"
    values = show(what, PCI, facts.machine, Variables(), by=None)
    return f"export {' '.join(f'{name}={value}' for name, value in values.items() if value is not None)}"


def _choose_meant(facts: Facts) -> str:
    """Return the command that chooses the GPUs that variables seem to name. Empty if they are not allowed."""
    kernel, machine = facts.kernel, facts.machine
    if kernel is UNKNOWN or machine is UNKNOWN:
        return _choose(facts, "auto")
    mask = "all" if kernel.variables.mask is None else kernel.variables.mask
    # AMD GPUs have the numbers of HIP, which can differ from those of AMD's tools.
    devices = () if machine.vendor == "amd" else _named(mask, machine)
    wish = devices or ("auto" if in_force(kernel.variables, machine) else "all")
    if kernel.program == "shell" or not in_force(kernel.launched, machine):
        return _choose(facts, wish)
    # GPUs that this process was not started with may belong to another job.
    had = read_visible(kernel.launched, machine).devices
    force = had is UNKNOWN or not had or not set(devices) <= set(had)
    return "" if force and kernel.grant.giver else _choose(facts, wish, force=force)


def _named(mask: str, machine: Inventory) -> tuple[Device, ...]:
    """Return the devices that a value seems to name: `"0,1"`, `0-2`, `[1]`, `cuda:2`, `all`."""
    text = f"0-{len(machine) - 1}" if mask.lower() == "all" else re.sub(r"cuda:|gpu:", "", mask)
    wanted: dict[Device, None] = {}
    for entry in filter(None, re.split(r"[\s,;\"'\[\](){}]+", text)):
        number = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", entry)
        numbers = range(int(number[1]), int(number[2] or number[1]) + 1) if number else ()
        for identifier in numbers if number else (entry,):
            with suppress(ChoiceError, ValueError):
                wanted[find(identifier, machine)] = None
    return tuple(wanted)


# By CUDA's error code (see `process.guard`): the fix, and whether to run it on a container's host.
_CUDA_ERRORS = {
    34: ("export LD_LIBRARY_PATH=", False),
    802: ("sudo systemctl restart nvidia-fabricmanager", True),
    803: (_REBOOT, True),
    804: ("sudo sh -c 'mv /usr/local/cuda/compat /usr/local/cuda/compat.unused && ldconfig'", False),
    999: ("sudo sh -c 'modprobe -r nvidia_uvm && modprobe nvidia_uvm'", True),
}


def check_cuda(facts: Facts) -> Iterator[Finding]:
    kernel = facts.kernel
    if kernel is UNKNOWN:
        return
    guard, about = kernel.guard, kernel.guard.runtime
    if guard.state is State.FROZEN and guard.is_known and not guard.devices:
        what = f"{about} {guard.seen} while no GPU was visible, so this process keeps none."
        meaning = "A later choice has no effect on this process."
        if kernel.program != "kernel":
            meaning += f" To use GPUs, {facts.restart}. Before anything uses {about}:"
        yield (_aside if kernel.chose_none else _wrong)(about, what, meaning, _choose_meant(facts))
    elif guard.state in (State.FORKED, State.UNCLEAR):
        # DataLoader and multiprocessing fork workers.
        finding = _wrong if guard.state is State.FORKED else _aside
        fix = 'multiprocessing.set_start_method("spawn", force=True)'
        yield finding(about, f"{about} {guard.sentence}.", "In the parent process, before it forks:", fix)
    elif guard.state is State.BROKEN:
        fix, is_of_host = _CUDA_ERRORS.get(guard.error, ("", False))
        meaning = f"Run this, and {facts.restart}. {facts.on_host * is_of_host}".rstrip()
        yield _wrong(about, f"{about} {guard.sentence}.", meaning * bool(fix), fix)


# The installation page of each framework, which has the builds for each driver.
_PAGES = {
    "PyTorch": "https://pytorch.org/get-started/locally",
    "TensorFlow": "https://www.tensorflow.org/install/pip",
    "JAX": "https://docs.jax.dev/en/latest/installation.html",
    "CuPy": "https://docs.cupy.dev/en/stable/install.html",
}


def check_builds(facts: Facts) -> Iterator[Finding]:
    builds = () if facts.packages is UNKNOWN else facts.packages.builds
    is_nvidia = facts.vendor == "nvidia"
    for build in builds:
        about, then = build.framework, f"Install a matching build, and {facts.restart}:"
        # Perhaps only another framework is meant to use the GPU: one that is imported, or a build for GPUs.
        others = [one for one in builds if one is not build]
        is_able = any(one.loaded or (one.built_for != "CPU" and not one.lacks) for one in others)
        unless_meant = _aside if (is_able and not build.loaded) or not facts.vendor else _wrong
        page, found = _PAGES[about], None
        # Only PyTorch's version is compared with its CUDA version, the part after the plus sign.
        both = (build.loaded, build.version)
        loaded, its = (one if about == "PyTorch" else one.partition("+")[0] for one in both)
        if loaded and loaded != its:
            what = f"{about} {build.loaded} is imported. {build.version} was installed later."
            yield _wrong(about, what, f"To use {build.version}, {facts.restart}.")
        elif build.built_for == "CPU":
            why = then if is_nvidia else "For SIMULATED GPUs that is fine." * facts.is_simulated
            found = unless_meant(
                about, f"{about} {build.version} is a CPU-only build.", why, page * is_nvidia
            )
        elif facts.vendor and build.built_for is not UNKNOWN:
            found = _unfit(build, then, facts)
        if found:
            yield found
        if build.lacks and is_nvidia:  # without a GPU, nothing needs it
            yield unless_meant(about, f"{about} {build.version} lacks {build.lacks}.", then, page)
        together = [one for one in build.distributions if re.match("tensorflow|cupy|jax.*-plugin", one)]
        if together[1:]:
            what = f"{listed(together)} conflict with each other."
            yield _aside(about, what, "Uninstall all of them, then install one:", page)


def _unfit(build: Build, then: str, facts: Facts) -> Finding | None:
    """Return why a build for GPUs cannot use this machine's GPUs."""
    about, page = build.framework, _PAGES[build.framework]
    what = f"{about} {build.version} was built for {build.built_for}"
    if facts.vendor == "amd":
        amd = _wrong(about, f"{what}, but this machine has AMD GPUs.", then, "https://rocm.docs.amd.com")
        return amd if build.built_for == "CUDA" else None
    if build.built_for != "CUDA":
        return _wrong(about, f"{what}, but this machine has NVIDIA GPUs.", then, page)
    if not facts.driver_cuda or major(build.runtime) <= major(facts.driver_cuda):
        return None
    what = f"{what} {build.runtime}, but the driver runs CUDA only up to {facts.driver_cuda}."
    return _wrong(about, what, f"Update the driver or install a matching build, and {facts.restart}:", page)


def check_leftovers(facts: Facts) -> Iterator[Finding]:
    found: dict[int, tuple[GpuProcess, list[str]]] = {}
    for device in () if facts.machine is UNKNOWN else parts(facts.machine.devices):
        for process in () if device.status.users is UNKNOWN else device.status.users:
            if process.is_same_user is True and process.is_this_process is False:
                memory = "memory" if process.memory is UNKNOWN else bytes_text(process.memory)
                found.setdefault(process.pid, (process, []))[1].append(f"{memory} on {device.label}")
    for pid, (process, held) in found.items():
        age = "" if process.age is UNKNOWN else f", running for {age_text(process.age)}"
        called = end_of_path(process.notebook, _LONGEST_PATH) or (
            "A process" if process.name is UNKNOWN else process.name
        )
        is_known = process.is_kernel and bool(process.notebook)
        kernel, has = "The kernel of " * is_known, f"{listed(held)}{age}"
        ends = f"%gpu_ps end {pid}" if facts.is_ipython else f"kill {pid}"
        what = f"{kernel}{called} (pid {pid}) is also yours and has {has}."
        # The processes of a simulated machine cannot be ended.
        fix = ("", "") if facts.is_simulated else ("If you no longer need it:", ends)
        yield _aside("own processes", what, *fix, f"Another process of this user has {has}.")


def check_ended_processes(facts: Facts) -> Iterator[Finding]:
    for gpu in facts.nvidia_gpus:
        told: set[int] = set()  # the driver can list the processes of an instance also on its GPU
        devices: tuple[Device, ...] = (*gpu.mig, gpu)
        for device in devices:
            for process in () if device.status.processes is UNKNOWN else device.status.processes:
                if process.has_ended and process.pid not in told:
                    told.add(process.pid)
                    what = f"{ended_text(process, device)}."
                    meaning = (
                        "If it stays, an administrator can look for what keeps the GPU open, "
                        "and reset the GPU once nothing uses it:"
                    )
                    file = f"/dev/nvidia{'*' if gpu.minor is UNKNOWN else gpu.minor}"
                    fix = f"sudo fuser -v {file}\nsudo nvidia-smi --gpu-reset -i {gpu.index}"
                    yield _aside("processes", what, meaning, fix)


def check_front_end(facts: Facts) -> Iterator[Finding]:
    pages = facts.pages
    if facts.packages is UNKNOWN or facts.program != "kernel" or pages.has_answered:
        return  # a page that has answered has the panel's packages
    here = facts.packages.versions.get("anywidget", "")
    table = "%gpu_panel shows a static table."
    if missing := None if facts.front_end is UNKNOWN else missing_there(facts.front_end, here):
        yield _aside(
            "panel", missing.problem, f"{table} Run this, then reload the page:", missing.fix, missing.problem
        )
    elif pages.panels:
        meaning = f"{table} Reload the page. If that does not help:"
        what = "A panel was shown, but no page has answered."
        yield _aside("panel", what, meaning, "pip install anywidget")


def check_simulation(facts: Facts) -> Iterator[Finding]:
    if facts.kernel is not UNKNOWN and facts.kernel.simulate and facts.is_simulated:
        python = 'import os; os.environ.pop("GPU_MAGIC_SIMULATE")' * (facts.program == "python")
        fix = "%env GPU_MAGIC_SIMULATE=" if facts.is_ipython else python or "unset GPU_MAGIC_SIMULATE"
        what = "GPU_MAGIC_SIMULATE is set, so the GPUs are SIMULATED and do not exist."
        yield _aside("GPUs", what, "To see this machine's GPUs:", fix)


# In the order of this file. The checks of the hardware are first, so their findings are shown first.
CHECKS: Sequence[Check] = [check for name, check in list(globals().items()) if name.startswith("check_")]
