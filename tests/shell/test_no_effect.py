"""Cells that name CUDA_VISIBLE_DEVICES, and change nothing in this kernel, get one line."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from gpu_magic.process.environment import misspelt
from gpu_magic.testing import start_cuda

if TYPE_CHECKING:
    from gpu_magic.testing import Machine
    from tests.conftest import Typed

VALUE = "CUDA_VISIBLE_DEVICES=1"


@pytest.mark.parametrize(
    ("cell", "command"),
    [
        (f"!export {VALUE}", "%gpus 1"),
        (f"!{VALUE}", "%gpus 1"),
        ("x = !export CUDA_VISIBLE_DEVICES='2,0' && export A=1", "%gpus 2,0"),
        (f"%sx export {VALUE}", "%gpus 1"),
        (f"%%bash\n# for the rest of this notebook\nexport {VALUE}", "%gpus 1"),
        ("%%sh\nexport CUDA_VISIBLE_DEVICES=", "%gpus none"),
        ("!export HIP_VISIBLE_DEVICES=3", "%gpus 3"),
        ("!export CUDA_VISIBLE_DEVICES=$N", "%gpus auto"),
        ("!export CUDA_VISIBLE_DEVICES=9", "%gpus auto"),
        # What only shows something does not make it work.
        (f"!export {VALUE} && echo $CUDA_VISIBLE_DEVICES", "%gpus 1"),
        (f"%%bash\nexport {VALUE}\necho GPU $CUDA_VISIBLE_DEVICES\nenv | grep CUDA || true", "%gpus 1"),
        (f"!echo; export {VALUE}", "%gpus 1"),
        (f"%%!\nexport {VALUE}", "%gpus 1"),
        (f"%%script --no-raise-error bash\nexport {VALUE}", "%gpus 1"),
        (f"import os; os.system('export {VALUE}');", "%gpus 1"),
        (f"import subprocess; subprocess.run('export {VALUE}', shell=True);", "%gpus 1"),
        (f"get_ipython().system('export {VALUE}')", "%gpus 1"),
        ("CUDA_VISIBLE_DEVICES = '2,0'  # GPUs", "%gpus 2,0"),
        ("CUDA_VISIBLE_DEVICES=1", "%gpus 1"),
        (f"%%capture\n!export {VALUE}", "%gpus 1"),
    ],
)
@pytest.mark.usefixtures("machine")
def test_a_variable_of_a_shell_that_has_ended(typed: Typed, cell: str, command: str) -> None:
    before = dict(os.environ)
    assert typed(cell).text.splitlines()[-1].endswith(f"Try {command}")
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    "cell",
    [
        f"!{VALUE} true",
        f"!{VALUE} ; true",
        f"%%bash\nexport {VALUE}\ntrue",
        f"x = '!export {VALUE}'",
        f"# !export {VALUE}",
        f"!export {VALUE}; env true",
        f"!echo 'export {VALUE}' >> /dev/null",
        f"import os; os.system('export {VALUE} && true');",
        f"import subprocess; subprocess.run('{VALUE} true', shell=True);",
        "import os, subprocess; subprocess.run(['true'], env=os.environ | {'CUDA_VISIBLE_DEVICES': '1'});",
        "import os; CUDA_VISIBLE_DEVICES = '0'\nx = dict(os.environ, CUDA_VISIBLE_DEVICES=CUDA_VISIBLE_DEVICES)",
        "!unset CUDA_VISIBLE_DEVICES",  # it is not set here
        f"!{VALUE} URL='https://host/path?{'&'.join(f'k{n}=v' for n in range(60))}' true",  # no end of backtracking
        # Nothing of it has run.
        f"# os.system('export {VALUE}')",
        f"x = \"os.system('export {VALUE}')\"",
        f'x = """\n!export {VALUE}\n"""',
        f'x = """\n{VALUE}\npython train.py\n"""',
        f"%%writefile /dev/null\nimport os\nos.system('export {VALUE}')",
        f"%%javascript\n!export {VALUE}",
        f"def f():\n    os.system('export {VALUE}')",
        f"(lambda run: run('{VALUE}'))(str);",
        # The cell uses it.
        "dict(\nCUDA_VISIBLE_DEVICES='1'\n);",
        "CUDA_VISIBLE_DEVICES = '1'\nx = [CUDA_VISIBLE_DEVICES]",
        "CUDA_VISIBLE_DEVICES = '1'\n!CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES true",
        f"%%bash\nexport {VALUE}\necho $(true)",
        f"!export {VALUE}; echo x | true",
        "%env CUDA_VISIBLE_DEVICES",
        "import os; os.environ.get('CUDA_VISIBLE_DEVICES')",
    ],
)
@pytest.mark.usefixtures("machine")
def test_what_has_an_effect_or_is_only_read_gets_none(typed: Typed, cell: str) -> None:
    assert "%gpus" not in typed(cell).text


@pytest.mark.machine(mask="0,1")
@pytest.mark.usefixtures("machine")
def test_a_variable_that_a_shell_has_removed(typed: Typed) -> None:
    cell = "!unset CUDA_VISIBLE_DEVICES"
    assert typed(cell).text.endswith(", and not in this kernel.\n")  # the kernel has started with it
    typed("%gpus 1")
    assert typed(cell).text.endswith(" Try %gpus reset\n")


@pytest.mark.usefixtures("machine")
def test_a_variable_that_only_the_start_of_a_container_reads(
    typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "NVIDIA_VISIBLE_DEVICES"
    monkeypatch.setenv(name, "0")  # to be removed after the test
    assert typed(f"%env {name}=1").text.endswith("only when a container starts. Try %gpus 1\n")
    monkeypatch.delenv(name)
    assert "Try" not in typed(f"x = '{name}'").text


def test_an_order_that_cuda_does_not_know(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")  # to be removed after the test
    assert typed("%env CUDA_DEVICE_ORDER=PCI").text.endswith("Try %env CUDA_DEVICE_ORDER=PCI_BUS_ID\n")
    assert "Try" not in typed("%env CUDA_DEVICE_ORDER=PCI_BUS_ID").text


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("cell", ["%env {}=1", "import os; os.environ['{}'] = '1'"])
def test_a_misspelt_variable(typed: Typed, monkeypatch: pytest.MonkeyPatch, cell: str) -> None:
    name = "CUDA_VISIBLE_DEVICE"
    monkeypatch.setenv(name, "0")  # to be removed after the test
    last = typed(cell.format(name)).text.splitlines()[-1]
    assert last == f"Nothing reads the variable {name}: it is spelled CUDA_VISIBLE_DEVICES. Try %gpus 1"
    assert typed("'CUDA_VISIBLE_DEVICES'; 1").text.count("\n") == 1  # this is not its name
    told = typed("%gpu_doctor").text
    assert f"{name}:" in told
    assert typed(next(line.strip() for line in told.splitlines() if "del os.environ" in line)).error is None
    assert f"{name}:" not in typed("%gpu_doctor").text


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICS", "CUDA_VISIBLE_DEVICES "])
def test_a_variable_with_a_letter_less_or_a_space_more(
    typed: Typed, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "0")
    assert (
        "it is spelled CUDA_VISIBLE_DEVICES. Try %gpus 1"
        in typed(f"import os; os.environ[{name!r}] = '1'").text
    )


def test_names_that_are_taken_for_others() -> None:
    near = ["CUDA_VISIBLE_DEVICE", "CUDA_VISABLE_DEVICES", "cuda_visible_devices", "HIP_VISIBLE_DEVICE"]
    other = ["CUDA_VISIBLE_DEVICES_SAVED", "NVIDIA_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES", "VISUAL"]
    assert misspelt({near[0]: ""}) == {}  # as %env leaves it
    assert list(misspelt(dict.fromkeys([*near, *other, "CUDA_VISIBLE_DEVICES"], "1"))) == near


@pytest.mark.parametrize("value", ['"1"', "1,9", "all", "cuda:1"])
def test_a_value_that_cuda_misreads(machine: Machine, typed: Typed, value: str) -> None:
    typed("import os")
    assert "CUDA" in typed(f"os.environ['CUDA_VISIBLE_DEVICES'] = {value!r}").text
    assert typed("y = os.environ['CUDA_VISIBLE_DEVICES']").text == ""  # once
    assert typed("os.environ['CUDA_VISIBLE_DEVICES'] = '1'").text == ""


@pytest.mark.machine(mask="0")
def test_a_variable_that_is_set_after_cuda_has_started(machine: Machine, typed: Typed) -> None:
    cell = "import os; os.environ['CUDA_VISIBLE_DEVICES'] = '1'"
    assert typed(cell).text == ""
    start_cuda()
    assert typed("x = 'CUDA_VISIBLE_DEVICES'").text == ""
    last = typed(cell.replace("'1'", "'2'")).text.splitlines()[-1]
    assert "after CUDA started" in last
    assert last.endswith("For what works now: %gpus auto")  # GPU 2 was not given
