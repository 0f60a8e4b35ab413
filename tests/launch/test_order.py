"""Each launcher's ranks see the GPUs that were asked for, in that order: read back in the ranks themselves."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import sys
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import gpu_magic
from gpu_magic.errors import LaunchError
from gpu_magic.launch.launch import prepare
from gpu_magic.shell.arguments import read_words
from gpu_magic.testing import simulate, start_cuda
from tests.processes import until

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

# What a rank has, as it sees it. It imports no framework: a second of each rank's.
SCRIPT = """
import json, os
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
print("has", json.dumps({name: os.environ.get(name) for name in names}))
"""
LAUNCHERS = {
    "torchrun": "torchrun show.py",
    "accelerate": "accelerate launch show.py",
    "deepspeed": "deepspeed show.py",
}


def shell_lines(*words: str) -> str:
    """Return what a dry run prints."""
    return prepare(read_words("gpu-magic launch", ["--dry-run", *words])).shell_lines


def seen(task: Any) -> list[dict[str, Any]]:
    """Return what each rank has, in the order of the ranks; all have ended well."""
    assert task.wait() == 0, task.output
    return [
        json.loads(line[4:]) for rank in task.ranks for line in rank.text.splitlines() if line[:4] == "has "
    ]


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("gpus", ["2,0", pytest.param("7,1,3,0", marks=pytest.mark.nightly)])
def test_ranks_have_the_gpus_in_order(machine: Path, launcher: str, gpus: str) -> None:
    (machine / "show.py").write_text(SCRIPT)
    count = len(gpus.split(","))
    ranks = seen(gpu_magic.launch(LAUNCHERS[launcher], gpus=gpus))
    assert [rank["CUDA_VISIBLE_DEVICES"] for rank in ranks] == [gpus] * count
    assert [rank["LOCAL_RANK"] for rank in ranks] == [str(number) for number in range(count)]
    assert {rank["WORLD_SIZE"] for rank in ranks} == {str(count)}
    assert {rank["CUDA_DEVICE_ORDER"] for rank in ranks} == {"PCI_BUS_ID"}


@pytest.mark.nightly
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_uuids_are_kept(launcher: str, tmp_path: Path) -> None:
    """A process that was started with UUIDs hands UUIDs on."""
    (tmp_path / "show.py").write_text(SCRIPT)
    with simulate("8xA100-80GB"):
        uuids = [str(gpu.uuid) for gpu in gpu_magic.gpus()]
    with simulate("8xA100-80GB", mask=",".join(uuids)):
        ranks = seen(gpu_magic.launch(LAUNCHERS[launcher], gpus="3,1", cwd=str(tmp_path)))
    assert [rank["CUDA_VISIBLE_DEVICES"] for rank in ranks] == [f"{uuids[3]},{uuids[1]}"] * 2


@pytest.mark.nightly
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_one_gpu_is_one_rank(machine: Path, launcher: str) -> None:
    (machine / "show.py").write_text(SCRIPT)
    task = gpu_magic.launch(LAUNCHERS[launcher], gpus=5)
    assert [rank["CUDA_VISIBLE_DEVICES"] for rank in seen(task)] == ["5"]


def test_a_launcher_is_told_by_its_path(machine: Path) -> None:
    (machine / "show.py").touch()
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    python = "python{}.{}".format(*sys.version_info)
    for launcher in ([torchrun], [python, "-m", "torch.distributed.run"]):
        assert " PET_NPROC_PER_NODE=2 " in shell_lines("--gpus", "3,1", *launcher, "show.py")


@pytest.mark.parametrize(
    ("typed", "start"),
    [
        ("python -m package --out d -n 4", "-m package --out d -n 4"),
        ("python -c pass --gpus 2", "-c pass --gpus 2"),
        ("python -Wignore -X dev show.py --each", "-Wignore -X dev show.py --each"),
        ("python -uB show.py", "-uB show.py"),
        ("python -um package", "-um package"),
        (
            "python -u -m torch.distributed.run show.py",
            "-u -m torch.distributed.run show.py",
        ),
        ("python -m accelerate.commands.launch show.py", "-m accelerate.commands.launch --multi_gpu"),
        ("python -V", "-V"),
        ("python --help-env", "--help-env"),
    ],
)
def test_python_s_own_options_are_read_as_python_does(machine: Path, typed: str, start: str) -> None:
    (machine / "show.py").write_text(SCRIPT)
    assert f"{sys.executable} {start}" in shell_lines("--gpus", "0,1", *typed.split())


@pytest.fixture
def uv(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program `uv` on PATH that runs what comes after `uv run`, and return the folder of a script."""
    (machine / "show.py").write_text(SCRIPT)
    (machine / "bin").mkdir()
    (machine / "bin/uv").write_text('#!/bin/sh\nshift\nexec "$@"\n')
    (machine / "bin/uv").chmod(0o755)
    beside = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", os.pathsep.join([str(machine / "bin"), beside, os.environ["PATH"]]))
    return machine


@pytest.mark.parametrize(
    "before",
    ["nohup", "env A=1", "nice -n 1", "timeout -k 9 1h", "uv run", "nohup uv run"],
    ids=lambda words: words,
)
def test_a_launcher_behind_a_program_that_runs_it(uv: Path, before: str) -> None:
    torchrun, accelerate = (f"{before} {LAUNCHERS[name]}" for name in ("torchrun", "accelerate"))
    ranks = seen(gpu_magic.launch(torchrun, gpus="3,1"))
    assert [(rank["CUDA_VISIBLE_DEVICES"], rank["LOCAL_RANK"]) for rank in ranks] == [
        ("3,1", "0"),
        ("3,1", "1"),
    ]
    assert "--num_processes=2" in shell_lines("--gpus", "3,1", *accelerate.split())
    module = shell_lines("--gpus", "3,1", *before.split(), "python", "-m", "torch.distributed.run", "show.py")
    assert " PET_NPROC_PER_NODE=2 " in module
    deepspeed = shell_lines("--gpus", "3,1", *before.split(), "deepspeed", "show.py")
    assert " -m deepspeed.launcher.launch --world_info=" in deepspeed
    assert ("uv" in before) == (" run python -m deepspeed" in deepspeed)


def test_a_launcher_that_uv_runs_as_a_module(uv: Path) -> None:
    line = shell_lines("--gpus", "3,1", *"uv run --with x -m torch.distributed.run show.py".split())
    assert "PET_NPROC_PER_NODE=2 " in line
    assert "/bin/uv run --with x -m torch.distributed.run show.py\n" in line
    assert "PET_" not in shell_lines("--gpus", "3,1", *"uv run -m package -m torch.distributed.run".split())


def test_a_variable_that_would_replace_the_gpus_is_refused_before_any_command(uv: Path) -> None:
    for words in (
        "env CUDA_VISIBLE_DEVICES=1 python show.py",
        "nice -n 5 env A=1 HIP_VISIBLE_DEVICES=1 true",
        "env -u CUDA_VISIBLE_DEVICES torchrun show.py",
        "env --unset=CUDA_VISIBLE_DEVICES true",
        "env -i torchrun show.py",
        "nohup env - true",
    ):
        with pytest.raises(LaunchError, match="would replace the chosen GPUs"):
            shell_lines("--gpus", "3,1", *words.split())
    assert "show.py CUDA_VISIBLE_DEVICES=1" in shell_lines(
        "--gpus", "3", "python", "show.py", "CUDA_VISIBLE_DEVICES=1"
    )


@pytest.mark.parametrize(
    "typed",
    [
        "nohup python show.py --strategy deepspeed",
        "timeout 1h python show.py --backend deepspeed",
        "uv run --with deepspeed python show.py",
        "uv add deepspeed",
        "uv run accelerate config",
        "echo --launcher torchrun show.py",
        "echo torchrun 1",
        "env LAUNCHER=torchrun python show.py",
    ],
)
def test_words_of_other_commands_are_no_launchers(uv: Path, typed: str) -> None:
    line = shell_lines("--gpus", "3,1", *typed.split())
    assert f"{typed.split(maxsplit=2)[2]}\n" in line
    assert "PET_" not in line


def test_python_behind_another_program_is_this_python(uv: Path) -> None:
    """Unless that program finds a Python of its own."""
    (uv / "bin/mpirun").symlink_to("/bin/true")
    (uv / "bin/sudo").symlink_to("/bin/true")
    for before in ("nohup", "timeout 1h", "mpirun -np 2", "sudo -u user -nE"):
        line = shell_lines("--gpus", "3,1", *before.split(), "python", "show.py")
        assert line.splitlines()[0].endswith(f" {sys.executable} show.py")
    assert "run python show.py\n" in shell_lines("--gpus", "3,1", "uv", "run", "python", "show.py")
    with pytest.raises(LaunchError, match="There is no script"):
        shell_lines("--gpus", "3,1", "nohup", "python", "other.py")


@pytest.mark.parametrize(
    "before", ["uv tool run", "uvx", "pipx run --spec torch", "profile -o out", "nohup profile -f --"]
)
def test_a_launcher_behind_a_program_of_any_kind(uv: Path, before: str) -> None:
    for name in ("uvx", "pipx", "profile"):
        (uv / "bin" / name).symlink_to(uv / "bin/uv")
    line = shell_lines("--gpus", "3,1", *before.split(), "torchrun", "show.py")
    assert " PET_NPROC_PER_NODE=2 " in line
    assert f"/bin/{before} torchrun show.py\n" in line


@pytest.mark.parametrize(
    ("typed", "has"),
    [
        ("mpirun", "mpirun -n 2 "),
        ("nohup mpiexec.hydra --oversubscribe", "mpiexec.hydra --oversubscribe -n 2 "),
        ("mpirun -np 4", "mpirun -np 4 "),
        ("mpirun -H a,b", "mpirun -H a,b "),
    ],
)
def test_mpi_starts_a_process_for_each_gpu_unless_it_is_told(uv: Path, typed: str, has: str) -> None:
    for name in ("mpirun", "mpiexec.hydra"):
        (uv / "bin" / name).symlink_to("/bin/true")
    line = shell_lines("--gpus", "3,1", *typed.split(), "python", "show.py")
    assert f"{has}{sys.executable} show.py\n" in line


@pytest.mark.parametrize(
    "typed",
    [
        "mpirun -np 2 torchrun show.py",
        "mpirun -np 2 python -m torch.distributed.run show.py",
        "mpirun -x CUDA_VISIBLE_DEVICES=1 true",
        "mpiexec -genv CUDA_VISIBLE_DEVICES 1 true",
        "srun -n 2 python show.py",
        "nohup srun true",
        "sudo python -E show.py",
        "docker run -e CUDA_VISIBLE_DEVICES=1 -e CUDA_DEVICE_ORDER image true",
    ],
)
def test_programs_that_would_replace_the_gpus_or_the_ranks_are_refused(uv: Path, typed: str) -> None:
    for name in ("docker", "mpirun", "mpiexec", "srun", "sudo"):
        (uv / "bin" / name).symlink_to("/bin/true")
    with pytest.raises(LaunchError, match="Omit"):
        shell_lines("--gpus", "3,1", *typed.split())
    assert "mpirun -x CUDA_VISIBLE_DEVICES true" in shell_lines(
        *"mpirun -x CUDA_VISIBLE_DEVICES true".split()
    )


@pytest.mark.parametrize(
    ("typed", "way"),
    [
        (
            "docker run --gpus all image true",
            "docker run -e CUDA_VISIBLE_DEVICES -e CUDA_DEVICE_ORDER --gpus all image true",
        ),
        (
            "docker run --env=CUDA_DEVICE_ORDER image torchrun show.py",
            "docker run -e CUDA_VISIBLE_DEVICES -e PET_NPROC_PER_NODE -e PET_STANDALONE --env=CUDA_DEVICE_ORDER "
            "image torchrun show.py",
        ),
        (
            "nice docker run image true",
            "Try nice docker run -e CUDA_VISIBLE_DEVICES -e CUDA_DEVICE_ORDER image true",
        ),
        ("sh -c 'A=1 torchrun show.py'", "sh -c hides torchrun. Try env A=1 torchrun show.py"),
        ("nohup bash -lc 'torchrun show.py'", "bash -c hides torchrun. Try nohup torchrun show.py"),
    ],
)
def test_a_program_that_would_lose_the_gpus_or_hides_a_launcher_is_refused(
    uv: Path, typed: str, way: str
) -> None:
    (uv / "bin/docker").symlink_to("/bin/true")
    with pytest.raises(LaunchError, match=f"{re.escape(way)}$"):
        shell_lines("--gpus", "3,1", *shlex.split(typed))


@pytest.mark.parametrize(
    "typed",
    [
        "docker ps",
        "docker run -e CUDA_VISIBLE_DEVICES -e CUDA_DEVICE_ORDER image python show.py",
        "docker run -eCUDA_VISIBLE_DEVICES -e=CUDA_DEVICE_ORDER image python show.py",
        "docker run --env-file variables image python show.py",
        "sudo -u user -E true",
        "sudo --preserve-env=CUDA_VISIBLE_DEVICES true",
        "sh -c 'echo torchrun'",
        "sh -c 'pip install deepspeed && python show.py'",
        "sh -c 'echo torchrun starts; python show.py'",
        "sh -c 'cd src && torchrun show.py'",
        "sh -c 'echo \"it'",
    ],
)
def test_a_program_that_passes_the_gpus_on_is_left_alone(uv: Path, typed: str) -> None:
    for name in ("docker", "sudo"):
        (uv / "bin" / name).symlink_to("/bin/true")
    assert f" {shlex.join(shlex.split(typed)[1:])}\n" in shell_lines("--gpus", "3,1", *shlex.split(typed))


@pytest.fixture
def other_python(uv: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put another Python and its programs on PATH. This Python has no programs beside it."""
    real = Path(sys.executable).resolve()
    for folder in ("this", "bin"):
        (uv / folder).mkdir(exist_ok=True)
        (uv / folder / "python3").symlink_to(real)
    monkeypatch.setattr(sys, "executable", str(uv / "this/python3"))
    firsts = {
        "torchrun": f"#!{uv}/bin/python3",
        "accelerate": f"""#!/bin/sh\n'''exec' "{uv}/bin/python3" "$0" "$@" """,
        "show.py": "#!/usr/bin/env python3",
        "vllm": f"#!{uv}/this/python3",
        "deepspeed": "#!/usr/bin/env bash",
    }
    for name, first in firsts.items():
        (uv / "bin" / name).write_text(f"{first}\n")
        (uv / "bin" / name).chmod(0o755)
    return uv


@pytest.mark.parametrize(
    ("typed", "named", "advice"),
    [
        ("torchrun show.py", "torchrun", "-m torch.distributed.run"),
        ("nohup torchrun show.py", "torchrun", "-m torch.distributed.run"),
        ("accelerate launch show.py", "accelerate", "-m accelerate.commands.launch"),
        ("bin/show.py", "bin/show.py", "bin/show.py"),
        ("vllm serve", "", ""),  # this Python's
        ("deepspeed show.py", "", ""),  # which Python it runs is unknown
        ("bin/torchrun show.py", "", ""),  # it is meant
        ("uv run torchrun show.py", "", ""),
        ("python show.py", "", ""),
    ],
)
def test_a_program_of_another_python_is_named(
    other_python: Path, typed: str, named: str, advice: str
) -> None:
    note = f"# {named} runs {other_python}/bin/python3, not this Python. To use this Python: python {advice}"
    assert shell_lines("--gpus", "3,1", *typed.split()).splitlines()[2:] == [note] * bool(named)


def test_a_launcher_whose_python_is_gone_is_refused(other_python: Path) -> None:
    (other_python / "bin/python3").unlink()
    with pytest.raises(
        LaunchError, match=r"/bin/python3, which does not exist\. To use this Python: python -m"
    ):
        shell_lines("--gpus", "3,1", "torchrun", "show.py")


def test_the_value_of_an_option_is_no_launcher(uv: Path) -> None:
    line = shell_lines("--gpus", "3,1", *"uv run --with accelerate -p 3.12 torchrun show.py".split())
    assert "PET_NPROC_PER_NODE=2 " in line
    assert " run --with accelerate -p 3.12 torchrun show.py\n" in line


def test_a_launcher_of_another_environment_is_found_there(uv: Path) -> None:
    line = shell_lines("--gpus", "3,1", "uv", "run", "--with", "rich", "torchrun", "show.py")
    assert "/bin/uv run --with rich torchrun show.py\n" in line


@pytest.mark.parametrize(
    "words", ["uv run torchrun --nproc-per-node 4 show.py", "env CUDA_VISIBLE_DEVICES=1 torchrun show.py"]
)
def test_a_launcher_behind_another_program_is_checked_as_well(uv: Path, words: str) -> None:
    with pytest.raises(LaunchError):
        shell_lines("--gpus", "3,1", *words.split())


def test_an_abbreviated_flag_of_torchrun_is_that_flag(machine: Path) -> None:
    (machine / "show.py").write_text(SCRIPT)
    ranks = seen(gpu_magic.launch("torchrun --stand --nproc_per 2 show.py", gpus="3,1"))
    assert [rank["WORLD_SIZE"] for rank in ranks] == ["2", "2"]


@pytest.mark.parametrize(
    ("flags", "adds"),
    [
        ("", "PET_NPROC_PER_NODE=2 PET_STANDALONE=1 "),
        ("--master_p 29500", "PET_NPROC_PER_NODE=2 "),
        ("--rdzv-end=host:1 --nproc gpu", "PET_NPROC_PER_NODE=2 "),
    ],
)
def test_torchrun_gets_variables_for_flags_that_are_not_typed(machine: Path, flags: str, adds: str) -> None:
    (machine / "show.py").touch()
    line = shell_lines("--gpus", "3,1", "torchrun", *flags.split(), "show.py").splitlines()[0]
    assert re.findall(r"PET_\S+ ", line) == [f"{one} " for one in adds.split()]
    assert "nproc" not in line


@pytest.mark.parametrize(
    "flags",
    [
        "--multi_gpu --mixed_precision bf16",
        "--a_new_switch",  # of a later version
        "--a-new-flag 3 --quiet",
        "--config_file named.yaml --debug",
    ],
)
def test_a_script_is_found_behind_flags_of_accelerate(machine: Path, flags: str) -> None:
    (machine / "show.py").touch()
    with pytest.raises(LaunchError, match=r"There is no script .*/other\.py"):
        shell_lines("accelerate", "launch", *flags.split(), "other.py", "show.py")
    assert f" {flags} show.py 1\n" in shell_lines("accelerate", "launch", *flags.split(), "show.py", "1")
    assert f" {flags} -m package\n" in shell_lines("accelerate", "launch", *flags.split(), "-m", "package")


def test_deepspeed_is_told_a_port_that_no_other_socket_is_given(machine: Path) -> None:
    text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
    first, last = map(int, text.split())
    if last - first > 60000:
        pytest.skip("this machine gives out all of its ports")
    (machine / "show.py").touch()
    lines = [shell_lines("--gpus", "0", "deepspeed", "show.py") for _ in range(20)]
    ports = [int(re.search(r"--master_port=(\d+)", line)[1]) for line in lines]  # type: ignore[index]
    assert [port for port in ports if first <= port <= last] == []


def test_a_program_is_no_variable_for_a_sign_in_its_path(machine: Path) -> None:
    program = machine / "lr=0.1" / "show"
    program.parent.mkdir()
    program.symlink_to("/usr/bin/printenv")
    task = gpu_magic.launch([str(program), "CUDA_VISIBLE_DEVICES"], gpus="2")
    task.wait()
    assert task.output == "2\n"


def test_every_order_of_every_number_reaches_a_program(machine: Path) -> None:
    """The same without a launcher, which costs seconds: what is handed to each of them."""
    for count in (1, 2, 3):
        for order in permutations("035", count):
            gpus = ",".join(order)
            task = gpu_magic.launch(["printenv", "CUDA_VISIBLE_DEVICES"], gpus=gpus)
            task.wait()
            assert task.output == f"{gpus}\n"


def test_what_is_chosen_is_what_a_command_gets(machine: Path) -> None:
    gpu_magic.choose("6,2,4")
    both = [gpu_magic.launch("printenv CUDA_VISIBLE_DEVICES", count=count) for count in (None, 2)]
    assert [task.wait() or task.output for task in both] == ["6,2,4\n", "6,2\n"]


@pytest.mark.parametrize(
    ("mask", "gpus"),
    [(None, [*range(8)]), ("3,1", [3, 1]), (" 5, 2", [5, 2]), ("2,0,-1,4", [2, 0])],
)
def test_a_launch_without_gpus_passes_the_variables_on(
    mask: str | None, gpus: list[int], tmp_path: Path
) -> None:
    """They are not written again, and the GPUs that they mean are those that are shown and counted."""
    script = tmp_path / "show.py"
    script.touch()
    with simulate("8xA100-80GB", mask=mask):
        task = gpu_magic.launch(["sh", "-c", "echo \"'${CUDA_VISIBLE_DEVICES-unset}'\"; sleep 600"])
        try:
            assert [device.index for device in task.devices] == gpus
            until(lambda: task.output)
            assert task.output == f"'{'unset' if mask is None else mask}'\n"
        finally:
            task.stop()
        assert f"PET_NPROC_PER_NODE={len(gpus)} " in shell_lines("torchrun", str(script))
        world = re.search(r"--world_info=(\S+)", shell_lines("deepspeed", str(script)))
        assert world
        assert json.loads(base64.urlsafe_b64decode(world[1])) == {"localhost": gpus}


def test_a_launch_without_gpus_is_not_wider_than_what_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with simulate("4xA100-80GB", mask="1,3"), monkeypatch.context() as cell:
        cell.setenv("CUDA_VISIBLE_DEVICES", "0,1")
        with pytest.raises(gpu_magic.ChoiceError):
            gpu_magic.launch("true")
        assert gpu_magic.launch("true", force=True).wait() == 0


def test_after_a_change_that_cuda_did_not_see_a_command_gets_what_the_process_has(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu_magic.choose("1,4")
    start_cuda()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    task = gpu_magic.launch("printenv CUDA_VISIBLE_DEVICES")
    task.wait()
    assert task.output == "1,4\n"


@pytest.mark.parametrize(("ours", "got"), [(None, ""), ("0", "0\n"), ("1", "1\n")])
def test_a_command_does_not_get_the_variable_that_only_the_notebook_needs(
    machine: Path, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch, ours: str | None, got: str
) -> None:
    """`torch.cuda.is_available()` would be True in it where CUDA cannot start; a user's own value is passed on."""
    name = "PYTORCH_NVML_BASED_CUDA_CHECK"
    monkeypatch.delenv(name, raising=False)
    if ours is not None:
        monkeypatch.setenv(name, ours)
    shell.run_line_magic("load_ext", "gpu_magic")
    assert os.environ[name] == (ours or "1")
    task = gpu_magic.launch(["sh", "-c", f"printenv {name}; true"])
    task.wait()
    assert task.output == got


def test_each_gets_one_gpu_and_its_number(machine: Path) -> None:
    code = "import os; print(*map(os.environ.get, ['CUDA_VISIBLE_DEVICES', 'GPU_MAGIC_INDEX', 'GPU_MAGIC_COUNT']))"
    task = gpu_magic.launch(["python", "-c", code], gpus="4,1", each=True)
    task.wait()
    assert [rank.text for rank in task.ranks] == ["4 0 2\n", "1 1 2\n"]


def test_a_process_in_which_cuda_has_started_launches_on_any_gpu(machine: Path) -> None:
    gpu_magic.choose("1")
    start_cuda()
    task = gpu_magic.launch("printenv CUDA_VISIBLE_DEVICES", gpus="3,0")
    task.wait()
    assert task.output == "3,0\n"


@pytest.mark.parametrize(
    ("kind", "is_saved"),
    [
        ("FSDP", False),
        pytest.param("FSDP", True, marks=pytest.mark.nightly),
        pytest.param("MULTI_GPU", False, marks=pytest.mark.nightly),
        pytest.param("MULTI_GPU", True, marks=pytest.mark.nightly),
    ],
)
def test_a_configuration_of_accelerate_keeps_all_but_the_gpus(
    machine: Path, monkeypatch: pytest.MonkeyPatch, kind: str, *, is_saved: bool
) -> None:
    """One that `accelerate config` has saved, or that is named. FSDP was lost, and of a named one the precision."""
    file = machine / ("accelerate/default_config.yaml" if is_saved else "named.yaml")
    file.parent.mkdir(exist_ok=True)
    file.write_text(
        f"compute_environment: LOCAL_MACHINE\ndistributed_type: {kind}\nfsdp_config:\n  fsdp_version: 2\n"
        "gpu_ids: 0,7\nmachine_rank: 0\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 4\n"
    )
    monkeypatch.setenv("HF_HOME", str(machine))
    names = "'CUDA_VISIBLE_DEVICES', 'ACCELERATE_MIXED_PRECISION', 'ACCELERATE_USE_FSDP'"
    (machine / "show.py").write_text(f"import os; print([os.environ.get(name) for name in ({names})])")
    named = [] if is_saved else ["--config_file", "named.yaml"]
    task = gpu_magic.launch(["accelerate", "launch", *named, "show.py"], gpus="3,1")
    assert task.wait() == 0
    found = ["3,1", "bf16", "true" if kind == "FSDP" else None]
    assert [rank.text for rank in task.ranks] == [f"{found}\n"] * 2


def test_a_reset_is_as_many_gpus_as_the_process_was_given(machine: Path) -> None:
    """Its variable has no value: that was one rank, and an error with `each`."""
    lines = shell_lines("--gpus", "reset", "torchrun", "-m", "x")
    assert "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 " in lines
    assert "PET_NPROC_PER_NODE=8 " in lines
    assert shell_lines("--gpus", "reset", "--each", "true").count("/true\n") == 8
