"""What other code does to the variables after a choice is told once, and the claim follows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from IPython.utils.capture import capture_output

import gpu_magic
from gpu_magic.testing import start_cuda
from tests.machine import CARDS, Driver, environment

if TYPE_CHECKING:
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.testing import Machine
    from tests.conftest import Fresh, Typed

MASK = "CUDA_VISIBLE_DEVICES"
BACK = "To restore: %gpus 2,0"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (f"os.environ.pop('{MASK}')", f"{MASK} was removed"),
        (f"del os.environ['{MASK}']", f"{MASK} was removed"),
        (f"os.environ['{MASK}'] = '1'", f"{MASK}=1 was set"),
        (f"os.putenv('{MASK}', '3')", f"{MASK}=3 was set"),
        (f"os.environ.update({MASK}='')", f"{MASK}= was set"),
        ("os.environ.pop('CUDA_DEVICE_ORDER')", "CUDA_DEVICE_ORDER was removed"),
    ],
)
def test_a_choice_that_other_code_changes(machine: Machine, typed: Typed, code: str, said: str) -> None:
    typed("import os")
    assert typed("%gpus 2,0").error is None
    text = typed(f"{code};").text
    assert said in text
    assert BACK in text
    assert (". To keep it: %gpus " in text, "To keep it: %gpus 2,0" in text) == ("_ORDER" not in code, False)
    assert typed("1").text == "Out[4]: 1\n"  # once
    assert BACK in typed("%gpus").text
    # Without a visible GPU, the doctor's own finding about that comes instead.
    assert (BACK in " ".join(typed("%gpu_doctor").text.split())) is (said != f"{MASK}= was set")
    assert BACK not in typed("%gpus 2,0").text
    assert BACK not in typed("%gpus").text
    assert BACK in typed(f"{code};").text  # it is news again


def test_each_change_is_told(machine: Machine, typed: Typed) -> None:
    typed("import os\n%gpus 2,0")
    for value in ("1", "3"):
        assert f"{MASK}={value}" in typed(f"os.environ['{MASK}'] = '{value}'").text
    assert typed(f"os.environ['{MASK}'] = '2,0'").text == ""  # as it was


def test_a_cell_that_chooses_and_is_changed_tells_it_each_time_it_is_run(
    machine: Machine, typed: Typed
) -> None:
    for _ in range(2):
        assert BACK in typed(f"import os\n%gpus 2,0\nos.environ['{MASK}'] = '1'").text


def test_what_the_table_shows_is_what_cuda_reads(machine: Machine, typed: Typed) -> None:
    typed("import os\n%gpus 2,0")
    typed(f"os.putenv('{MASK}', '3')")
    assert [gpus.visible for gpus in [gpu_magic.gpus()]] == [(gpu_magic.gpus()[3],)]
    typed("%gpus 2,0")
    assert gpu_magic.gpus().visible == (gpu_magic.gpus()[2], gpu_magic.gpus()[0])


def test_a_change_that_a_hidden_cell_sees_first_is_shown_by_the_user_s_next_cell(
    machine: Machine, typed: Typed, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """VS Code's list of variables runs cells without a place in the history, and shows no output."""
    typed("%gpus 2,0")
    monkeypatch.setenv(MASK, "1")  # a thread, between cells
    with capture_output() as hidden:
        shell.run_cell("pass", store_history=False)
    assert hidden.stderr == hidden.stdout == ""
    assert BACK in typed("x = 1").text
    assert BACK not in typed("x = 1").text


def test_after_cuda_has_started_the_variable_means_nothing(machine: Machine, typed: Typed) -> None:
    typed("import os\n%gpus 2,0")
    start_cuda()
    typed("x = 1")
    assert BACK not in typed(f"y = dict(os.environ)\nos.environ['{MASK}'] = '1'").text
    assert BACK not in typed("%gpus").text


def test_workers_that_have_started_before_a_choice_are_named(fresh: Fresh) -> None:
    said = fresh(
        "import gpu_magic, gpu_magic.testing\n"
        "import multiprocessing\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.Pool(5), gpu_magic.testing.simulate('2xT4'):\n"
        "        print([gpu_magic.choose('1').warnings for _ in range(2)])\n"
    )
    assert (
        said.count("and 2 more run already and keep the earlier GPUs") == 1
    )  # the second choice changes nothing


def test_workers_that_share_a_name_are_counted(fresh: Fresh) -> None:
    """As those of Dask: "Dask Worker process (from Nanny)"."""
    said = fresh(
        "import gpu_magic, gpu_magic.testing\n"
        "import multiprocessing, time\n"
        "if __name__ == '__main__':\n"
        "    named = [multiprocessing.Process(target=time.sleep, args=[600], name='one', daemon=True) for _ in 'ab']\n"
        "    for process in named: process.start()\n"
        "    with gpu_magic.testing.simulate('2xT4'):\n"
        "        print(gpu_magic.choose('1').warnings)\n"
    )
    assert "one (2) run already and keep" in said


def test_workers_of_multiprocess_are_named(fresh: Fresh) -> None:
    """The package itself is not among those of the tests: this is its public function."""
    said = fresh(
        "import sys, types, gpu_magic, gpu_magic.testing\n"
        "sys.modules['multiprocess'] = package = types.ModuleType('multiprocess')\n"
        "package.active_children = lambda: [types.SimpleNamespace(name='ForkPoolWorker-1')]\n"
        "with gpu_magic.testing.simulate('2xT4'):\n"
        "    print(gpu_magic.choose('1').warnings)\n"
    )
    assert "ForkPoolWorker-1 runs already and keeps" in said


def test_ray_that_has_started_before_a_choice_is_named(fresh: Fresh) -> None:
    """Ray itself is not among the packages of the tests: this is its public function."""
    said = fresh(
        "import sys, types, gpu_magic, gpu_magic.testing\n"
        "ray = sys.modules['ray'] = types.ModuleType('ray')\n"
        "with gpu_magic.testing.simulate('2xT4'):\n"
        "    for number, started in ((0, False), (1, True)):\n"
        "        ray.is_initialized = lambda: started\n"
        "        print('Ray' in str(gpu_magic.choose(number)))\n"
    )
    assert said.split() == ["False", "True"]


@pytest.mark.parametrize(
    ("value", "claims", "wanted"), [("'1'", [1], True), ("None", [], True), ("'1'", [], False)]
)
def test_the_claim_follows(
    fresh: Fresh, native: Path, tmp_path: Path, value: str, claims: list[int], *, wanted: bool
) -> None:
    """It is that of a process over a pretend driver, because a simulated machine is claimed by nobody."""
    Driver(CARDS).write(tmp_path / "machine")
    found = fresh(
        f"""
import os
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "gpu_magic")
shell.run_cell("%config GpuMagics.claims = {wanted}")
shell.run_cell("%gpus 2,0")
shell.user_ns["value"] = {value}
shell.run_cell("import os; os.environ.pop('{MASK}') if value is None else os.environ.update({MASK}=value); 0;")
import gpu_magic
from gpu_magic.process.session import current
print([gpu.index for gpu in gpu_magic.gpus() if gpu.identity in current().claims.held])
""",
        **environment(native, tmp_path / "machine"),
        GPU_MAGIC_CLAIMS=str(tmp_path / "claims"),
    )
    assert found.splitlines()[-1] == str(claims)
