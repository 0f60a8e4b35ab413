"""Runs the notebooks on a simulated machine whose clock stands still, and keeps their outputs.

In moving.ipynb, measuring.ipynb and park.ipynb PyTorch has the tests' pretend accelerator. In
measuring.ipynb the kernel also works on the simulated machine, and the clock runs. In shared_server.ipynb and
start.ipynb the kernel claims GPUs in a folder that no other process sees. The other notebooks claim none, so
that they can run side by side.

The tests then hold the notebooks to these outputs, so look at the difference before you commit it.

Usage: python docs/notebooks.py [NOTEBOOK ...]      (all without NOTEBOOK)
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from gpu_magic.kernelspec.kernelspecs import install

FOLDER = Path(__file__).parent.parent / "notebooks"


def main(paths: list[Path]) -> None:
    """Run each notebook from the top and write it back."""
    simulated = {"GPU_MAGIC_SIMULATE": "8xA100-80GB clock=0", "GPU_MAGIC_CLAIMS": "off"}
    os.environ.pop("PYTHONUNBUFFERED", None)  # it would change the output of a dry run
    accelerator = [sys.executable, "-m", "tests.native"]
    for path in paths:
        extra = simulated
        if path.stem in ("moving", "measuring", "park"):
            done = subprocess.run(
                accelerator, cwd=FOLDER.parent, stdout=subprocess.PIPE, text=True, check=True
            )
            extra = {"PYTHONPATH": done.stdout.strip()}
        if path.stem == "measuring":
            extra |= {"GPU_MAGIC_SIMULATE": "2xA100-80GB own=0:12GiB:60", "GPU_MAGIC_CLAIMS": "off"}
        kernel = "python3"
        if path.stem == "start":
            kernels = tempfile.mkdtemp()
            kernel = install("auto", prefix=kernels).name
            os.environ["JUPYTER_PATH"] = f"{kernels}/share/jupyter"
        if path.stem in ("shared_server", "start"):
            extra = simulated | {"GPU_MAGIC_CLAIMS": str(Path(tempfile.mkdtemp()) / "claims")}
        notebook = nbformat.read(path, as_version=4)
        client = NotebookClient(
            notebook,
            kernel_name=kernel,
            resources={"metadata": {"path": FOLDER}},
            store_widget_state=False,  # the panel does not work without its kernel
        )
        client.execute(env=os.environ | {"TF_ENABLE_ONEDNN_OPTS": "0"} | extra)
        notebook.metadata.pop("widgets", None)  # one that an editor has left
        for cell in notebook.cells:
            tags = cell.metadata.get("tags")  # that it is to fail
            cell.metadata = {"tags": tags} if tags else {}  # without the times of the run
        nbformat.write(notebook, path)
        print(path)


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb")))
