"""The matrix: what runs in a kernel, with the oldest and the newest versions that we work with.

`make matrix` runs all of it, each combination in an environment of its own, and ends with a list that says
of each whether it passed. `make matrix ONLY="colab or oldest"` runs some, and `NOXPYTHON=3.13` before it one
Python only. A Python that this machine does not have is skipped. With Python 3.11 the frameworks are there
(in "oldest" the oldest that we promise), and all tests of kernels run; pip takes PyTorch's CPU build where
you point it there.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

import nox

nox.needs_version = ">=2025.2"
nox.options.default_venv_backend = "venv"
nox.options.reuse_venv = "yes"

WITH_FRAMEWORKS = "3.11"
PROJECT = tomllib.loads(Path("pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
OURS = [*PROJECT["dependencies"], *EXTRAS["cluster"]]
# The oldest that we promise: docs/reference/limits.md.
FRAMEWORKS = ["torch==2.10.0", "tensorflow-cpu==2.21.0", "jax==0.10.0", "jaxlib==0.10.0"]
# What goes with ipykernel 6.17, which does not work with the next major releases of these.
IPYKERNEL_617 = ["ipykernel==6.17.1", "jupyter_client==7.4.9", "pyzmq==26.2.1"]


class Combination(NamedTuple):
    """Versions that are tested together, and the Pythons that have them."""

    name: str  # no other's is a part of it: nox finds it by what ONLY says
    pythons: tuple[str, ...]
    versions: list[str]


COMBINATIONS = [
    Combination(
        "oldest",
        ("3.11", "3.12", "3.13"),
        [*(each.replace(">=", "==") for each in OURS), *FRAMEWORKS, *IPYKERNEL_617],
    ),
    # As googlecolab/backend-info lists them, in pip-freeze.gpu.txt of 2026-08-19.
    Combination(
        "colab",
        ("3.11", "3.12", "3.13"),
        [
            "ipython==7.34.0",
            *IPYKERNEL_617,
            "anywidget==0.9.21",
            "ipywidgets==7.7.1",
            "nvidia-ml-py==13.610.43",
            "tornado==6.5.7",
            "traitlets==5.7.1",
        ],
    ),
    Combination("ipython_8_first", ("3.11", "3.12", "3.13"), ["ipython==8.0.0", "ipykernel==6.30.1"]),
    Combination("ipython_8_last", ("3.11", "3.12", "3.13", "3.14"), ["ipython<9"]),
    # The oldest NumPy that we promise. The frameworks of Python 3.11 need a newer one.
    Combination("numpy_first", ("3.12",), ["numpy==1.26.4"]),
    Combination("newest", ("3.11", "3.12", "3.13", "3.14"), []),
]
# Of the test extra, what tests without frameworks need.
TOOLS = {
    "cloudpickle",
    "filelock",
    "hypothesis",
    "ipykernel",
    "ipyparallel",
    "jupyter_client",
    "nbclient",
    "numpy",
    "pandas",
    "pexpect",
    "psutil",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
}
# It needs a newer pyzmq than ipykernel 6.17, and its tests are not of a kernel.
NOT_OF_A_KERNEL = {"marimo"}
TESTS = (
    "tests/shell",
    "tests/objects/test_numpy.py",
    "tests/gpus/test_magic.py",
    "tests/launch/test_tasks.py",
    "tests/test_terminal.py",
)
WITHOUT_FRAMEWORKS = tuple(
    f"tests/kernel/test_{name}.py"
    for name in (
        "versions",
        "allotment",
        "claims",
        "configured",
        "gpu_doctor",
        "map",
        "panel",
        "restart",
        "waiting",
    )
)
# What rests on PyTorch's insides, and the PyTorch it is tested with; empty for the newest.
OF_PYTORCH = [f"tests/{name}" for name in ("frameworks", "fit", "move", "objects", "on_gpu", "measure")]
PYTORCHS = ("2.10.0", "2.13.0", "")
# PyTorch 2.10 built for CUDA crashes without a GPU where two threads compile, also without gpu_magic.
CRASHES = "tests/on_gpu/test_torch.py::test_compiled"


def name_of(requirement: str) -> str:
    """Return the name of the distribution that a requirement asks for."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


@nox.session
@nox.parametrize(
    ("python", "versions"),
    [
        nox.param(python, each.versions, id=f"{python}-{each.name}")
        for each in COMBINATIONS
        for python in each.pythons
    ],
)
def matrix(session: nox.Session, versions: list[str]) -> None:
    """Test one combination of versions with one Python."""
    # Not in `create_tmp`, which becomes the folder for temporary files: its path is too long for sockets.
    constraints = Path(session.virtualenv.location) / "constraints.txt"
    constraints.write_text("\n".join(versions))
    constrained = {name_of(each) for each in versions}
    frameworks = session.python == WITH_FRAMEWORKS
    packages = [
        name_of(each) if name_of(each) in constrained else each
        for each in (*EXTRAS["test"], "numpy")
        if name_of(each) in TOOLS or (frameworks and name_of(each) not in NOT_OF_A_KERNEL)
    ]
    session.install("--quiet", "--editable", ".", *packages, "--constraint", str(constraints))
    tests = [*TESTS, *(["tests/kernel"] if frameworks else WITHOUT_FRAMEWORKS)]
    session.run("python", "-m", "pytest", "-q", "-n", "auto", *(session.posargs or tests))


@nox.session(python=WITH_FRAMEWORKS)
@nox.parametrize("version", [nox.param(each, id=f"torch_{each or 'last'}") for each in PYTORCHS])
def pytorch(session: nox.Session, version: str) -> None:
    """Test blocks, moves, memory and predictions with one version of PyTorch."""
    packages = [each for each in EXTRAS["test"] if name_of(each) != "torch"]
    wanted = f"torch=={version}" if version else "torch"
    session.install("--quiet", "--upgrade", "--editable", ".", *packages, wanted)
    skipped = [f"--deselect={CRASHES}"] if version == "2.10.0" else []
    session.run("python", "-m", "pytest", "-q", "-n", "auto", *skipped, *(session.posargs or OF_PYTORCH))
