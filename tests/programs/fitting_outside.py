"""Functions that write files, remove them, run commands and connect: `fit` refuses to follow them."""

import contextlib
import csv
import os
import pathlib
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch._dynamo
from torch import nn
from torch import save as saved

import gpu_magic

os.chdir(tempfile.mkdtemp())
model, x = nn.Linear(4, 4), torch.randn(2, 4)
kept = pathlib.Path("kept.txt")
kept.write_text("as it was")
opened = pathlib.Path("opened.txt").open("w", encoding="utf-8")  # noqa: SIM115
rows = csv.writer(opened)
database = sqlite3.connect("data.db")
database.execute("create table t (a)")
database.commit()
server = socket.create_server(("127.0.0.1", 0))
address = server.getsockname()


def swallowing(x):
    with contextlib.suppress(Exception):
        np.save("a.npy", np.zeros(2))
    return model(x)


class Net(nn.Module):
    def forward(self, x):
        kept.write_text("changed")
        return x


class Keeper:
    """Holds files that it does not use here."""

    def __init__(self):
        self.opened, self.database, self.shown = opened, database, sys.stdout

    def step(self, x):
        self.shown.write("nothing")
        kept.read_text()
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123
            nowhere.write("x")
        return model(x).sum().backward()


def sends(x):
    with socket.socket() as one:
        one.connect(address)


CALLS = {
    "write_text": lambda x: kept.write_text("changed"),
    "open": lambda x: open("a.txt", "x"),  # noqa: PTH123, SIM115
    "low": lambda x: os.open("a.txt", os.O_CREAT | os.O_WRONLY),
    "np.save": lambda x: np.save("a.npy", np.zeros(2)),
    "torch.save": lambda x: torch.save(x, "model.pt"),
    "from torch import save": lambda x: saved(x, "model.pt"),
    "unlink": lambda x: kept.unlink(),
    "os.remove": lambda x: os.remove("kept.txt"),  # noqa: PTH107
    "rename": lambda x: kept.rename("other.txt"),
    "mkdir": lambda x: pathlib.Path("made").mkdir(),
    "rmtree": lambda x: shutil.rmtree("."),
    "run": lambda x: subprocess.run(["touch", "a.txt"], check=False),
    "system": lambda x: os.system("touch a.txt"),
    "sqlite3": lambda x: sqlite3.connect("new.db"),
    "temporary": lambda x: tempfile.mkdtemp(dir="."),
    "connect": sends,
    "file that is open": lambda x: model(x) + opened.write("x"),
    "csv": lambda x: (model(x), rows.writerow([1])),
    "database that is open": lambda x: database.execute("insert into t values (1)"),
    "swallowing": swallowing,
    "model": Net(),
}


def refused(how):
    files = sorted(pathlib.Path().iterdir())
    said = ""
    try:
        gpu_magic.fit(CALLS[how], x)
    except gpu_magic.FitError as error:
        said = str(error)
    opened.flush()
    return {
        "said": said,
        "files": sorted(pathlib.Path().iterdir()) == files,
        "text": kept.read_text() + pathlib.Path("opened.txt").read_text(),
        "rows": database.execute("select count(*) from t").fetchone()[0],
    }


def allowed():
    """Read a file, hold open ones, import a module; afterwards, write."""
    pathlib.Path("fresh_module.py").write_text("value = 1")
    sys.path.insert(0, str(pathlib.Path.cwd()))
    sys.dont_write_bytecode = False

    def step(x):
        import fresh_module

        assert fresh_module.value == 1
        assert sqlite3.connect(":memory:").execute("select 1").fetchone() == (1,)
        return Keeper().step(x)

    keeper = Keeper()
    peaks = [gpu_magic.fit(step, x).peak, gpu_magic.fit(keeper.step, x).peak]
    pathlib.Path("after.txt").write_text("written")
    return {
        "peaks": peaks,
        "after": pathlib.Path("after.txt").read_text(),
        "compiled": pathlib.Path("__pycache__").exists(),
        "bytecode": sys.dont_write_bytecode,
    }
