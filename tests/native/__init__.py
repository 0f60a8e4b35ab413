"""Pretend driver libraries of NVIDIA and AMD, for tests in other processes: subprocesses, kernels, browsers.

They lie beneath the real callers (pynvml, ctypes, PyTorch), which load them by name as they load NVIDIA's:

>>> native = build(folder)
>>> driver.write(state)
>>> subprocess.run(command, env=os.environ | environment(native, state))

The libraries read the state again at every call, so `driver.losing(3).write(state)` takes GPU 3 away from a
process that is looking at it. The file's format stands in state.h.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCES = Path(__file__).parent
PRETEND = SOURCES / "pretend"
LIBRARIES = {"nvml.c": "libnvidia-ml.so.1", "cuda.c": "libcuda.so.1"}
# AMD's are in a folder of their own, so that a process can have these, the others, or both.
AMD_LIBRARIES = {"amd_smi.c": "libamd_smi.so", "hsa.c": "libhsa-runtime64.so.1"}


@dataclass(frozen=True, slots=True)
class Instance:
    """A MIG instance of a card.

    Parameters
    ----------
    uuid
        With its prefix: ``MIG-`` and a UUID.
    name
        As NVML gives it, for example ``NVIDIA A100-SXM4-40GB MIG 1g.5gb``.
    total, used
        Memory in bytes.
    """

    uuid: str
    name: str
    total: int
    used: int = 0


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU as the driver would describe it. A figure that is None is one that the driver does not know.

    Parameters
    ----------
    uuid
        With its prefix: ``GPU-`` and a UUID.
    name
        The product's name. It may be hostile, but it is one line.
    bus_id
        As NVML writes it: ``00000000:3B:00.0``.
    total, used
        Memory in bytes.
    util
        How busy the GPU is, in percent.
    temperature
        In degrees C.
    milliwatts
        Power drawn. The limit is 400 W, and unknown where this is.
    lost
        Whether the GPU fell off the bus: NVML then says so to every question, and CUDA leaves it out.
    processes
        Compute processes: each a PID, its memory on this GPU in bytes, and, where that is known, how busy it
        keeps the GPU in percent.
    energy
        Millijoules that it had counted when the machine was started; None: it does not count them.
    mig
        MIG instances; with at least one of them, MIG mode is on.
    mode
        The compute mode, as NVML numbers them: 0 is Default, 2 Prohibited, 3 Exclusive_Process.
    minor
        The number of its device file, 2 for /dev/nvidia2 and for /dev/dri/renderD130; None: its index.
    hip
        The number that HIP gives to it: only of an AMD GPU, of which the UUID is ``GPU-`` and 16 digits.
    reserved
        Bytes that the driver keeps for itself: neither used nor free.
    speed
        The compute capability's two numbers, the CUDA cores, and their highest frequency in MHz.
    reasons
        Why its clocks are low, besides that it is idle, as NVML's bits.
    """

    uuid: str
    name: str
    bus_id: str
    total: int
    used: int | None
    util: int | None
    temperature: int | None
    milliwatts: int | None
    lost: bool = False
    processes: tuple[tuple[int, int | None] | tuple[int, int | None, int], ...] = ()
    mig: tuple[Instance, ...] = ()
    mode: int = 0
    minor: int | None = None
    hip: int | None = None
    energy: int | None = None
    reserved: int = 450 << 20
    speed: tuple[int, int, int, int] | None = (8, 0, 6912, 1410)
    reasons: int = 0

    def lines(self) -> list[str]:
        """Return the card's lines of the state file."""
        figures = (self.total, self.used, self.util, self.temperature, self.milliwatts)
        life = "lost" if self.lost else "ok"
        return [
            f"gpu {self.uuid} {self.bus_id} {' '.join(map(_figure, figures))} {life} {self.name}",
            f"mode {self.mode}",
            *([] if self.minor is None else [f"file {self.minor}"]),
            f"hip {_figure(self.hip)}",
            f"energy {_figure(self.energy)}",
            f"reserve {self.reserved}",
            *([] if self.speed is None else [f"speed {' '.join(map(str, self.speed))}"]),
            f"reasons {self.reasons}",
            *(
                f"proc {pid} {_figure(used)} {_figure(work[0] if work else None)}"
                for pid, used, *work in self.processes
            ),
            *(f"mig {part.uuid} {part.total} {part.used} {part.name}" for part in self.mig),
        ]


@dataclass(frozen=True, slots=True)
class Driver:
    """A machine with its driver.

    Parameters
    ----------
    cards
        In the order of their bus ids, which is how NVML numbers them.
    version
        The driver's version.
    cuda
        The newest CUDA that the driver can run: 13000 is 13.0.
    refuse
        The NVML error code that nvmlInit answers, or 0 for none: 18 is a driver that was updated while
        loaded (LIB_RM_VERSION_MISMATCH), 4 is NO_PERMISSION, 9 is DRIVER_NOT_LOADED.
    hangs
        Calls that do not come back for a while: the library's own symbol (``nvmlDeviceGetMemoryInfo``), the
        index of the GPU, and seconds. They come back early once they are not named here any more. An index
        of -1 is every GPU, and the machine itself.
    answers
        Calls that tell nothing: the symbol, the index of the GPU as in `hangs`, and the NVML error code that
        they answer.
    loses
        The index of a GPU that is lost at a call into NVML, and the number of that call, counted in each
        process since the state file was written; None: none.

    Raises
    ------
    ValueError
        The cards are not in the order of their bus ids: NVML and CUDA would number them differently.
    """

    cards: tuple[Card, ...]
    version: str = "580.65.06"
    cuda: int = 13000
    refuse: int = 0
    hangs: tuple[tuple[str, int, float], ...] = ()
    answers: tuple[tuple[str, int, int], ...] = ()
    loses: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        """Refuse a machine that cannot be."""
        places = [card.bus_id.upper() for card in self.cards]
        if places != sorted(places):
            message = f"cards are numbered in the order of their bus ids, not as {places}"
            raise ValueError(message)

    def losing(self, *indices: int) -> Driver:
        """Return the same machine after the GPUs with these indices fell off the bus."""
        cards = (replace(card, lost=card.lost or i in indices) for i, card in enumerate(self.cards))
        return replace(self, cards=tuple(cards))

    def write(self, path: Path) -> None:
        """Write the machine to a state file, at once: a reader gets the old file or the new one.

        Parameters
        ----------
        path
            The state file; it need not exist.
        """
        lines = [f"driver {self.version}", f"cuda {self.cuda}", f"refuse {self.refuse}"]
        lines += (f"hang {function} {gpu} {seconds}" for function, gpu, seconds in self.hangs)
        lines += (f"answer {function} {gpu} {code}" for function, gpu, code in self.answers)
        lines += [f"lose {self.loses[0]} {self.loses[1]} {time.monotonic_ns()}"] if self.loses else []
        for card in self.cards:
            lines += card.lines()
        new = path.with_name(f"{path.name}.new")
        new.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogateescape")
        new.replace(path)


def build(folder: Path) -> Path:
    """Compile NVIDIA's two libraries.

    Parameters
    ----------
    folder
        Where they go; made where it is missing.

    Returns
    -------
    Path
        The same folder.

    Raises
    ------
    RuntimeError
        There is no gcc, or it does not accept the source.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for source, library in LIBRARIES.items():
        _compile(
            SOURCES / source, folder / library, *([SOURCES / "checkpoint.c"] if source == "cuda.c" else [])
        )
    return folder


def build_amd(folder: Path) -> Path:
    """Compile AMD's two libraries, as `build` does NVIDIA's."""
    folder.mkdir(parents=True, exist_ok=True)
    for source, library in AMD_LIBRARIES.items():
        _compile(SOURCES / source, folder / library, *([_rest(folder)] if source == "amd_smi.c" else []))
    return folder


def build_system(folder: Path) -> Path:
    """Compile the system in trouble; return its library, which LD_PRELOAD names. What it does stands in system.c."""
    library = folder / "libsystem.so"
    _compile(SOURCES / "system.c", library)
    return library


def _rest(folder: Path) -> Path:
    """Write the functions of AMD SMI that amd_smi.c has not: the module amdsmi wants all of them."""
    spec = importlib.util.find_spec("amdsmi")
    if spec is None or spec.origin is None:
        message = "the pretend libamd_smi.so stands beneath the real amdsmi: pip install amdsmi"
        raise RuntimeError(message)
    wrapper = Path(spec.origin).with_name("amdsmi_wrapper.py").read_text(encoding="utf-8")
    wanted = set(re.findall(r"_libraries\['libamd_smi.so'\]\.(\w+)", wrapper))
    there = set(
        re.findall(r"^int (\w+)\(", (SOURCES / "amd_smi.c").read_text(encoding="utf-8"), re.MULTILINE)
    )
    file = folder / "rest.c"
    file.write_text("".join(f"int {name}(void) {{ return 2; }}\n" for name in sorted(wanted - there)))
    return file


def _compile(source: Path, library: Path, *more: Path) -> None:
    gcc = shutil.which("gcc")
    if gcc is None:
        message = "the pretend driver libraries are written in C and need gcc (Debian: apt-get install gcc)"
        raise RuntimeError(message)
    # The soname is what a caller finds who asks for a library that is loaded already (RTLD_NOLOAD).
    command = [gcc, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{library.name}"]
    command += ["-o", str(library), str(source), *map(str, more)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"gcc did not compile {source.name}:\n{done.stderr}"
        raise RuntimeError(message)


def build_pretend(folder: Path) -> Path:
    """Compile PyTorch's pretend accelerator, where it is not there yet: half a minute.

    Parameters
    ----------
    folder
        Where it is kept from one run of the tests to the next; two processes can ask for it at once.

    Returns
    -------
    Path
        The same folder. With it and `PRETEND` in PYTHONPATH, PyTorch has the accelerator when it is imported.

    Raises
    ------
    RuntimeError
        There is no C++ compiler, or it does not accept the source.
    """
    from filelock import FileLock

    code = (
        "from torch.utils.cpp_extension import load\n"
        f"load('pretend_native', [{str(PRETEND / 'pretend.cpp')!r}], build_directory={str(folder)!r}, "
        "extra_cflags=['-O0'], is_python_module=False)"
    )
    # ninja is a program that pip puts beside Python.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    # To ask PyTorch whether it is there takes two seconds.
    built, key = folder / "built", f"{sys.version}\n{(PRETEND / 'pretend.cpp').read_text()}"
    with FileLock(f"{folder}.lock"):
        if built.exists() and built.read_text() == key:
            return folder
        # PyTorch's own lock, a file, stays where a build was killed, and the next one waited for its end forever.
        (folder / "lock").unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PATH": path},
        )
    if done.returncode:
        message = f"PyTorch's pretend accelerator did not compile:\n{done.stdout}\n{done.stderr}"
        raise RuntimeError(message)
    built.write_text(key)
    return folder


def pretend_path(folder: Path) -> str:
    """Return the PYTHONPATH with which PyTorch has the accelerator, built in a folder where it is not yet."""
    return os.pathsep.join(map(str, (SOURCES.parent.parent, build_pretend(folder), PRETEND)))


def environment(folder: Path, state_path: Path) -> dict[str, str]:
    """Return the variables that a process needs to find the libraries and the machine.

    They are to be set before the process starts: the loader reads LD_LIBRARY_PATH once. A mask that the
    caller's own environment has (CUDA_VISIBLE_DEVICES) goes on to the process unless the caller removes it.

    Parameters
    ----------
    folder
        Where `build` put the libraries.
    state_path
        Where `Driver.write` put the machine.

    Returns
    -------
    dict[str, str]
        Variables to lay over an environment.
    """
    places = [str(folder.resolve()), os.environ.get("LD_LIBRARY_PATH", "")]
    return {
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, places)),
        "GPU_MAGIC_TEST_STATE": str(state_path.resolve()),
    }


def amd_environment(
    folder: Path, state_path: Path, nvidia: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the variables that a process needs to find AMD's libraries and the machine.

    Parameters
    ----------
    folder
        Where `build_amd` put the libraries.
    state_path
        Where `Driver.write` put the machine.
    nvidia
        What `environment` has returned, for a machine with the GPUs of both; None: with AMD's alone.
    """
    before = dict(nvidia or {})
    places = [str(folder.resolve()), before.get("LD_LIBRARY_PATH", os.environ.get("LD_LIBRARY_PATH", ""))]
    return before | {
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, places)),
        "GPU_MAGIC_TEST_AMD_STATE": str(state_path.resolve()),
    }


def _figure(value: int | None) -> str:
    return "-1" if value is None else str(value)
