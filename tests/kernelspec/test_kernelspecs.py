"""`gpu-magic kernel install`, `list` and `remove`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import ipykernel.kernelspec
import pytest
from jupyter_client.kernelspec import KernelSpecManager

from gpu_magic.command_line import main

if TYPE_CHECKING:
    from gpu_magic.testing import Machine


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share/jupyter"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "user"))
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("", ("gpu-auto", "a free GPU", "auto")),
        ("--gpus 2", ("gpu-2", "GPU 2", "2")),
        ("--gpus 2,0", ("gpu-2-0", "GPUs 2, 0", "2,0")),
        (
            "--gpus auto:2 --min-free 20GB",
            ("gpu-auto-2-20gb", "2 free GPUs with 20GB", "auto:2 --min-free 20GB"),
        ),
        ("--model A100", ("gpu-auto-a100", "a free A100 GPU", "auto --model A100")),
        (  # another kernel than that of `--min-free 20GB`
            "--gpus auto:2 --memory-limit 20GB",
            (
                "gpu-auto-2-memory-limit-20gb",
                "2 free GPUs --memory-limit 20GB",
                "auto:2 --memory-limit 20GB",
            ),
        ),
        ("--gpus none", ("gpu-none", "no GPU", "none")),
        ("--gpus all", ("gpu-all", "all GPUs", "all")),
    ],
)
def test_a_kernel_is_installed_listed_and_removed(
    prefix: Path, capsys: pytest.CaptureFixture[str], typed: str, expected: tuple[str, str, str]
) -> None:
    name, shown, gpus = expected
    assert main(["kernel", "install", "--prefix", str(prefix), *typed.split()]) == 0
    folder = prefix / "share/jupyter/kernels" / name
    spec = KernelSpecManager().get_kernel_spec(name)
    assert spec.display_name == f"Python 3 · {shown}"
    assert spec.argv == [
        sys.executable,
        "-m",
        "gpu_magic.kernelspec",
        "-f",
        "{connection_file}",
        "--gpus",
        gpus,
    ]
    assert spec.metadata["debugger"]
    assert spec.interrupt_mode == "signal"
    plain = Path(ipykernel.kernelspec.RESOURCES)
    for logo in ("logo-svg.svg", "logo-32x32.png", "logo-64x64.png"):
        assert (folder / logo).read_bytes() != (plain / logo).read_bytes()
    assert main(["kernel", "list"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Jupyter now offers 'Python 3 · {shown}': the kernel {name} in {folder}\nName ")
    assert out.splitlines()[-1].startswith(f"{name}  Python 3 · {shown}")
    assert main(["kernel", "remove", name]) == 0
    assert not folder.exists()
    assert main(["kernel", "list"]) == 0
    assert "None is installed" in capsys.readouterr().out


def test_a_user_can_have_one_of_another_name(prefix: Path) -> None:
    options = ["--user", "--name", "mine", "--display-name", "Ours", "--plain"]
    assert main(["kernel", "install", *options]) == 0
    spec = json.loads((prefix / "user/kernels/mine/kernel.json").read_text())
    assert spec["display_name"] == "Ours"
    assert spec["argv"][-1] == "--plain"


def test_a_kernel_whose_python_is_gone_is_named(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["kernel", "install", "--prefix", str(prefix)])
    file = prefix / "share/jupyter/kernels/gpu-auto/kernel.json"
    file.write_text(file.read_text().replace(sys.executable, "/gone/bin/python"))
    assert main(["kernel", "list"]) == 0
    says = "gpu-auto can't start: /gone/bin/python is gone. To remove it: gpu-magic kernel remove gpu-auto\n"
    assert capsys.readouterr().out.endswith(says)


@pytest.mark.usefixtures("machine")
def test_one_that_never_gets_its_gpus_here_is_named(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It can be for another machine that shares the folder."""
    wrong = "gpu-9 starts without a GPU on this machine: There is no GPU 9. This machine has GPUs 0 to 3.\n"
    assert main(["kernel", "install", "--prefix", str(prefix), "--gpus", "9"]) == 0
    assert capsys.readouterr().out.endswith(f"/kernels/gpu-9\n{wrong}")
    for words in ("3", "auto:4 --min-free 80GB", "none", "1,0 --memory-limit 8GB"):
        assert main(["kernel", "install", "--prefix", str(prefix), "--gpus", *words.split()]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 1
    main(["kernel", "install", "--prefix", str(prefix), "--gpus", "0", "--memory-limit", "200GB"])
    assert "--memory-limit 200GB is more than GPU 0 has (80.0 GiB)." in capsys.readouterr().out
    assert main(["kernel", "list"]) == 0
    assert len([line for line in capsys.readouterr().out.splitlines() if " on this machine: " in line]) == 2


def test_one_that_only_lacks_its_gpus_now_or_in_this_process_is_not_named(
    prefix: Path, capsys: pytest.CaptureFixture[str], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Jupyter server gives its kernels other variables than a shell."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    for gpu in machine.gpus:
        gpu.run("train.py", "maria", 70 << 30)
    for words in ("auto", "auto --min-free 20GB", "3"):
        assert main(["kernel", "install", "--prefix", str(prefix), "--gpus", *words.split()]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 1
    assert main(["kernel", "install", "--prefix", str(prefix), "--gpus", "auto:9"]) == 0
    never = (
        "gpu-auto-9 starts without a GPU on this machine: auto:9 can pick only 4 GPUs. Try --gpus auto:4\n"
    )
    assert capsys.readouterr().out.endswith(never)


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("install --gpus auto:x", "Try --gpus auto:2"),
        ("install --gpus reset", "Try --gpus auto or --gpus all or --gpus none"),
        ("install --gpus 1,1", "names 1 twice"),
        ("install --name a/b", "is not a kernel name"),
        ("install --min-fre 2GB --user --sys-prefix", "do not go together"),
        ("install --wait 3m", "There is no --wait."),
        ("install --min-free abc", "--min-free abc is not a size"),
        ("install --gpus 2 --min-free 8GB", "--min-free 8GB goes with auto"),
        ("install --gpus none --model A100", "--model A100 goes with auto"),
        ("remove a b", "takes no b. gpu-magic kernel remove --help explains it."),
        ("remove gpu-auto", "gpu_magic has added no kernel 'gpu-auto'. It has added none."),
        ("remove python3", "gpu_magic has added no kernel 'python3'"),
        ("lst", "Did you mean gpu-magic kernel list?"),
        (
            "uninstall gpu-auto",
            "Did you mean gpu-magic kernel remove?",
        ),
        ("", "gpu-magic kernel needs an action: install, list or remove"),
    ],
)
def test_what_can_not_be_done_is_said_in_one_line(
    prefix: Path, capsys: pytest.CaptureFixture[str], typed: str, says: str
) -> None:
    assert main(["kernel", *typed.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert not (prefix / "share").exists()


def test_a_kernel_of_others_stays(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = prefix / "share/jupyter/kernels/theirs/kernel.json"
    theirs.parent.mkdir(parents=True)
    theirs.write_text('{"argv": ["R"], "display_name": "R", "language": "R"}')
    (prefix / "user/kernels/gpu-auto").mkdir(parents=True)  # without a kernel that Jupyter could list
    assert main(["kernel", "install", "--prefix", str(prefix), "--name", "Theirs"]) == 2
    assert main(["kernel", "install", "--user"]) == 2
    other, mine = capsys.readouterr().err.splitlines()
    assert other.endswith(
        "/kernels/theirs is another kernel. Choose a name for the new one: --name my-Theirs"
    )
    assert mine.endswith(
        "/kernels/gpu-auto is another kernel. Choose a name for the new one: --name my-gpu-auto"
    )
    assert '"R"' in theirs.read_text()


def test_one_of_another_prefix_is_listed_and_removed(
    prefix: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = ["--prefix", str(prefix / "of a hub")]
    assert main(["kernel", "install", "--name", "Ours", *there]) == 0
    assert main(["kernel", "list"]) == 0
    assert "None is installed" in capsys.readouterr().out
    assert main(["kernel", "list", *there]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("ours  ")
    assert main(["kernel", "remove", "Ours", *there]) == 0
    assert not (prefix / "of a hub/share/jupyter/kernels/ours").exists()


def test_a_folder_that_can_not_be_written_to_is_named(
    prefix: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (prefix / "share").touch()
    assert main(["kernel", "install", "--prefix", str(prefix)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gpu-magic: Cannot write the kernel: ")
    assert line.endswith(". To install it elsewhere, add --user")
