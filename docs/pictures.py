"""Makes the README's pictures in a real JupyterLab: the panel, light and dark.

Needs the test extra, and Debian's Chromium or the path of another in CHROMIUM.

Usage: python -m docs.pictures [FOLDER]      (without FOLDER, in docs)
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tests.browser.lab import chromium, start_lab

if TYPE_CHECKING:
    from tests.browser.lab import Lab

__all__: list[str] = []

MINUTES = 2.5  # for the charts to fill
PANEL = ["%load_ext gpu_magic", "%gpus 1,2", "%gpu_panel"]
# A GPU that another notebook of the same user uses, and a lost GPU.
PREPARE = """
from gpu_magic.testing import simulate
simulation = simulate("8xA100-80GB", seed=7)
machine = simulation.__enter__()
machine.populate()
kernel = {"work": 62, "age": 5400, "is_same_user": True, "notebook": "evaluate.ipynb"}
machine.gpus[0].run("ipykernel", "maria", 21 << 30, **kernel)
machine.gpus[7].lose()
"""
WIDTH = 1280


def main(folder: Path) -> None:
    """Write panel-light.png and panel-dark.png."""
    machine = {"GPU_MAGIC_CLAIMS": "off"}
    with TemporaryDirectory() as home, chromium() as browser, start_lab(Path(home), browser, machine) as lab:
        for theme in ("light", "dark"):
            _take_panel(lab, theme, folder)


def _take_panel(lab: Lab, theme: str, folder: Path) -> None:
    notebook = lab.open(PREPARE, *PANEL, dark=theme == "dark", width=WIDTH, scale=2)
    for cell in range(1 + len(PANEL)):
        notebook.run(cell)
    notebook.page.wait_for_timeout(MINUTES * 60_000)
    for key in (2, 6):
        notebook.row(key).click()
    notebook.page.mouse.move(0, 0)
    notebook.page.evaluate("document.activeElement.blur()")
    notebook.page.wait_for_timeout(500)
    notebook.panel.screenshot(path=folder / f"panel-{theme}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs"))
