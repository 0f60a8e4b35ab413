"""`%load_ext gpu_magic` in a running kernel, over an extension that does nothing."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.kernel import answer_of
from benchmarks.report import Row, Table
from benchmarks.timing import clean_environment, turns

__all__ = ["run"]

ROUNDS = 9
NOTHING, OURS = "an extension that does nothing", "gpu_magic"
# What an extension would pay for the libraries that others of its kind import.
IMPORTS = ("pynvml", "nvitop", "gpustat", "ipywidgets", "anywidget")
NEVER = ("pynvml", "ipywidgets", "anywidget", "torch", "tensorflow", "jax")
CELL = """
import sys, time
begun = time.perf_counter()
get_ipython().run_line_magic("load_ext", {extension!r})
answer = time.perf_counter() - begun, [name for name in {never!r} if name in sys.modules]
"""


def run() -> list[Table]:
    extensions = {NOTHING: "does_nothing", OURS: "gpu_magic"}
    with TemporaryDirectory() as name:
        folder = Path(name)
        load = "def load_ipython_extension(shell):\n    pass\n"
        (folder / "does_nothing.py").write_text(load)
        for module in filter(find_spec, IMPORTS):
            (folder / f"imports_{module}.py").write_text(f"import {module}\n{load}")
            extensions[f"one that imports {module}"] = f"imports_{module}"
        seconds: dict[str, list[float]] = {extension: [] for extension in extensions}
        imported: set[str] = set()
        for contender in extensions.values():
            _load(contender, folder)  # warms up: byte code, the disk's cache
        for contender in turns(list(extensions), ROUNDS):
            took, found = _load(extensions[contender], folder)
            seconds[contender].append(took)
            imported.update(found if contender == OURS else ())
    medians = {contender: median(values) for contender, values in seconds.items()}
    return [_times(medians), _imports(imported)]


def _times(medians: dict[str, float]) -> Table:
    rows = [Row(name, value) for name, value in medians.items()]
    over = medians[OURS] - medians[NOTHING]
    rows.insert(2, Row("gpu_magic over nothing", over))
    return Table("%load_ext in a running kernel", rows, NOTHING)


def _imports(imported: set[str]) -> Table:
    row = Row(f"of {', '.join(NEVER)}", len(imported), "none", not imported)
    notes = [f"imported: {', '.join(sorted(imported))}"] if imported else []
    return Table("What %load_ext gpu_magic imports", [row], write=lambda n: f"{n:.0f}", notes=notes)


def _load(extension: str, folder: Path) -> tuple[float, list[str]]:
    """Load an extension in a fresh kernel; return seconds, and which of NEVER are loaded then."""
    environment = clean_environment()
    environment["PYTHONPATH"] += f":{folder}"
    took, found = answer_of(CELL.format(extension=extension, never=NEVER), environment)
    return took, found
