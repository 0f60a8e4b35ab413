"""`%gpus` as typed, in an IPython shell over a simulated machine."""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from IPython.core.completer import provisionalcompleter

import gpu_magic
from gpu_magic.gpus.options import Options
from gpu_magic.gpus.wait import Waiting
from gpu_magic.process.session import current
from gpu_magic.shell import completion
from gpu_magic.testing import simulate, start_cuda
from tests.conftest import ROOT

if TYPE_CHECKING:
    from types import FrameType

    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.testing import Machine
    from tests.conftest import Typed


pytestmark = [pytest.mark.machine("8xA100-80GB"), pytest.mark.usefixtures("machine")]


def complete(shell: InteractiveShell, line: str) -> list[str]:
    """Return what the line can become, as the notebook's Tab asks for it."""
    with provisionalcompleter():
        found = shell.Completer.completions(line, len(line))
        return [line[: one.start] + one.text + line[one.end :] for one in found]


def environment() -> tuple[str | None, str | None]:
    return os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER")


def test_the_table_is_marked_as_simulated(typed: Typed) -> None:
    shown = typed("%gpus").text
    assert shown.startswith("SIMULATED machine (8xA100-80GB)")
    assert shown.count("A100-SXM4") == 8


def test_a_choice_is_parsed_and_everything_read_once_on_a_short_way_to_the_variables(typed: Typed) -> None:
    package = str(ROOT / "gpu_magic")
    calls: Counter[str] = Counter()
    ways: list[list[tuple[str, str]]] = []

    def note(frame: FrameType | None, event: str, _: object) -> None:
        if event != "call" or frame is None:
            return
        calls[frame.f_code.co_qualname] += frame.f_code.co_filename.startswith(package)
        if frame.f_code is type(os.environ).__setitem__.__code__:
            way = []
            while frame is not None and frame.f_code.co_name != "run_line_magic":
                code, frame = frame.f_code, frame.f_back
                way += [(code.co_filename, code.co_qualname)] * code.co_filename.startswith(package)
            ways.append(way)

    for line in ("%gpus 1,3", "%gpus 2,0", "%gpus 1,3"):  # what is loaded or looked up first is not counted
        typed(line)
    sys.setprofile(note)
    typed("%gpus 2,0")
    sys.setprofile(None)
    assert environment() == ("2,0", "PCI_BUS_ID")
    once = ("parse", "MachineReader.inventory", "Claims.others", "Snapshot.of", "decide", "commit")
    assert {name: calls[name] for name in once} == dict.fromkeys(once, 1)
    assert calls["probe"] == 2  # also when the variables are set: another thread can have started CUDA
    assert len(ways) == 2
    for way in ways:
        assert len(way) <= 9, way
        assert len({file for file, _ in way}) <= 6, way


def test_what_people_type_besides(typed: Typed) -> None:
    ways = (
        "%gpus 1, 3",
        "%gpus '1','3'",
        "%gpus 1,3   # the quiet ones",
        "gpus 1,3",
        "%gpus 1,3 ; ",
        '%gpus "1,3" --order="pci"',
    )
    for line in ways:
        typed("%gpus none")
        assert typed(line).error is None
        assert environment() == ("1,3", "PCI_BUS_ID"), line


def test_a_choice_prints_the_map_and_sets_the_variables(typed: Typed, machine: Machine) -> None:
    machine.gpus[3].run("train.py", "maria", 60 << 30, work=90)
    assert typed("%gpus 1,3").text.splitlines() == [
        "cuda:0 = GPU 1 (SIMULATED NVIDIA A100-SXM4-80GB, 79 GiB free)",
        "cuda:1 = GPU 3 (SIMULATED NVIDIA A100-SXM4-80GB, 19 GiB free)",
        "GPU 3 is in use by maria: train.py, 60.0 GiB",
    ]
    assert environment() == ("1,3", "PCI_BUS_ID")
    assert "cuda:1" in typed("%gpus").text


def test_a_dry_run_changes_nothing(typed: Typed) -> None:
    shown = typed("%gpus 2,0 --dry-run --order fastest").text
    assert "Dry run: would set CUDA_VISIBLE_DEVICES=2,0" in shown
    assert shown.endswith("CUDA_DEVICE_ORDER=FASTEST_FIRST\n")
    assert environment() == (None, None)


def test_auto(typed: Typed, machine: Machine) -> None:
    for number in (0, 1, 2):
        machine.gpus[number].run("train.py", "maria", (number + 1) << 30, work=90)
    assert typed("%gpus auto").text.startswith("cuda:0 = GPU 3 ")
    machine.gpus[3].fail("nvmlDeviceGetMemoryInfo", 3)
    typed("%gpus auto:5")
    assert environment()[0] == "4,5,6,7,0"


@pytest.mark.parametrize("again", ["auto", "auto:1", "auto --wait 1m"])
def test_auto_again_once_cuda_has_started_is_what_it_has(typed: Typed, machine: Machine, again: str) -> None:
    typed(f"%gpus {'auto --wait 1m' if 'wait' in again else 'auto'}")
    start_cuda()
    machine.gpus[0].run("train.py", "maria", 60 << 30, work=90)
    assert typed(f"%gpus {again}").text.startswith("cuda:0 = GPU 0 ")


def test_uuids_are_written_where_that_is_configured_and_numbers_where_they_can_be(typed: Typed) -> None:
    typed("%config GpuMagics.by = 'uuid'")
    typed("%gpus 1")
    assert (environment()[0] or "").startswith("GPU-")
    with simulate("2xA100-80GB"):  # configuration holds there, too
        assert gpu_magic.choose(1).mask == gpu_magic.gpus()[1].uuid
    typed("%unload_ext gpu_magic")
    assert gpu_magic.choose(1).mask == "1"


def test_reset_says_what_that_is(typed: Typed) -> None:
    typed("%gpus 1")
    reset = "Reset: CUDA_VISIBLE_DEVICES not set, CUDA_DEVICE_ORDER not set\n"
    assert typed("%gpus reset").text == reset
    assert environment() == (None, None)


# Which requests and options are none is tried in test_request, test_select, test_options and tests/shell.
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("%gpus 9", "There is no GPU 9. This machine has GPUs 0 to 7."),
        ("%gpus 1 3", "separate GPUs by commas. Try 1,3"),
        ("%gpus -1,2", "numbered from 0"),
        ("%gpus GPU-1", "could be GPU 1"),
        ("%gpus MIG-0", "No MIG instance here has a UUID"),
        ("%gpus 3,1 --in-process", "CUDA has not started, so --in-process is not needed. Try %gpus 3,1"),
        ("%gpus 1 --in-process --order pci", "nor memory limits. Omit --order."),
        ("%gpus 1 --restart --in-process", "--in-process needs no --restart. Use one of the two."),
        ("%gpus --reset", "There is no --reset. Try %gpus reset"),
        ("%gpus none --memory-limit 8GB", "Try all --memory-limit 8GB"),
        ("%gpus --forcd 1", "Did you mean --force?"),
        ("%gpus --force", "--force names no GPU"),
        ("%gpus {nobody}", "has a value here: NameError"),
        ("%gpus {[]}", "is empty"),
        ("%gpus {None}", "is None"),
        ("%gpus {True}", "does not name GPUs"),
        ('%gpus "1,2', "The line has no closing quotation."),
        ("%gpus auot:2", "'auot:2' is not a GPU. Try auto:2"),
        ("%gpus reset --order pci", "--order does not go with reset"),
        ("%gpus auto --min-free 1TB", "--min-free 1TB is more than any GPU has. The largest has 80.0 GiB."),
        ("%gpus auto:2 --growth yes", "'auto:2 yes' is not auto with a number of GPUs. Try auto:2"),
    ],
)
def test_bad_input_gets_one_line_and_nothing_changes(typed: Typed, line: str, says: str) -> None:
    typed("%gpus 5")
    before = environment()
    (said,) = typed(line).text.splitlines()
    assert said.startswith("UsageError: ")
    assert says in said
    assert environment() == before == ("5", "PCI_BUS_ID")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("%gpus n", "n is a variable. To use its value: %gpus {n}"),
        ("%%on_gpu n\npass", "n is a variable. To use its value: %%on_gpu {n}"),
        ("%gpus two", "'two' is not a GPU. Expected numbers"),
    ],
)
def test_a_variable_without_braces_is_told_from_other_words(typed: Typed, line: str, says: str) -> None:
    typed("n, auto = 2, 3")
    assert says in typed(line).text
    assert environment() == (None, None)
    assert typed("%gpus auto").text.startswith("cuda:0 = GPU ")  # what has a meaning is no variable


def test_a_wait_that_has_just_begun_has_waited_nothing(typed: Typed, machine: Machine) -> None:
    machine.gpus[3].run("train.py", "tom", 1 << 30, work=90)
    shown = typed("%gpus 3 --wait 1s").text
    assert "Waiting for SIMULATED GPU 3, 0 s of 1 s: in use by tom" in shown
    assert "Timed out after 1 s waiting for SIMULATED GPU 3: in use by tom" in shown


@pytest.mark.parametrize(
    ("pace", "first"), [("", 1.0), ("0.5", 0.5), ("7", 1.0), ("0", 1.0), ("soon", 1.0), ("nan", 1.0)]
)
def test_a_wait_looks_a_last_time_when_its_time_is_over_and_seldom_when_it_is_long(
    monkeypatch: pytest.MonkeyPatch, pace: str, first: float
) -> None:
    monkeypatch.setenv("GPU_MAGIC_PACE", pace)
    assert 0 < Waiting(current(), "auto", Options(), 0.5).next_pause() <= 0.5
    endless = Waiting(current(), "auto", Options(), None)
    pauses = [endless.next_pause() for _ in range(20)]
    assert (pauses[0], pauses[-1]) == (first, 10.0)


@pytest.mark.parametrize(
    ("expression", "mask"),
    [
        ("{[np.int64(1), 3]}", "1,3"),
        ("{np.int64(2)}", "2"),
        ("$n", "6"),
        ("{gpu_magic.gpus()[4]},{n}", "4,6"),
    ],
)
def test_a_value_is_written_as_one_would_type_it(typed: Typed, expression: str, mask: str) -> None:
    typed("import numpy as np, gpu_magic; n = 6")
    typed(f"%gpus {expression}")
    assert environment()[0] == mask


def test_a_value_of_an_option_can_be_an_expression(typed: Typed) -> None:
    assert "at most 7.5 GB" in typed("size = 7.5\n%gpus 0 --memory-limit {size}GB").text


def test_a_local_variable_of_the_code_that_runs_the_magic_counts(typed: Typed) -> None:
    typed("def pick(n):\n    get_ipython().run_line_magic('gpus', '{n}')\npick(3)")
    assert environment()[0] == "3"


THINGS = 'x = "y"; d = {"a  b": 1, "a #1": 2, "{x}": 3, "$x": 4, "{{x}}": 5, "x": {1: 6}}'


def test_where_answers_for_the_expression_that_is_typed(typed: Typed) -> None:
    typed(THINGS)
    for expression in 'd["a  b"]', "d['a #1']", 'd["{{x}}"]', "d[f'{chr(120):s}'][1]":
        assert typed(f"%where {expression}  # it's 'x'").text == f"{expression}  no arrays\n"


@pytest.mark.parametrize("line", ["%to_gpu d['{x}']", "%to_cpu d['{x}']", "%gpu_fit d['{x}']"])
def test_braces_in_an_expression_are_its_own(typed: Typed, line: str) -> None:
    typed(THINGS)
    cell = typed(line)
    assert cell.error is not None
    assert "KeyError" not in cell.text  # it would be 'y'
    assert "KeyError: 'no'" in typed(f"name = 'no'\n{line.replace('{x}', 'no')}").text


def test_a_name_in_braces_stands_for_the_text_in_it(typed: Typed) -> None:
    typed(f"{THINGS}\nname = 'x d'")
    for line in "%where {name}", "%where $name":
        assert typed(line).text == "x  no arrays\nd  no arrays\n"
    assert "no arrays" in typed("%where {1}").text


@pytest.mark.parametrize("magic", ["gpus", "to_gpu", "gpu_free", "gpu_panel"])
def test_help_is_an_option_of_every_magic(typed: Typed, magic: str) -> None:
    before = environment()
    cell = typed(f"%{magic} --help")
    assert f"%{magic}" in cell.text
    assert cell.error is None
    assert environment() == before


@pytest.mark.parametrize(
    ("line", "offers", "not_offered"),
    [
        ("%gpus ", {"0", "7", "all", "auto", "none", "reset"}, {"8"}),
        ("%gpus 1,", {"0", "2"}, {"1", "all"}),
        ("%gpus --", {"--model", "--order", "--dry-run", "--force", "--strict"}, set()),
        ("%gpus 1 --order ", {"pci", "fastest"}, {"all"}),
        ("%gpus 1 --order=p", {"--order=pci"}, set()),
        ("%gpus auto:", {"auto:1", "auto:8"}, {"abs", "auto:9"}),
        ("%gpus 2-", {"2-3", "2-7"}, {"abs", "2-1"}),
        ("%%on_gpu ", {"0", "cuda:7", "smi:3", "cpu"}, {"8", "smi:8", "all"}),
        ("%%on_gpu 0,", {"1", "cuda:1"}, {"0", "cpu"}),
        ("%%on_gpu 0 --", {"--only", "--or-cpu", "--mirror", "--verbose"}, {"--order"}),
        ("%%on_gpu 0 --only t", {"torch", "tensorflow"}, {"jax", "tuple"}),
        ("%to_gpu --", {"--device", "--numpy", "--or-cpu", "--all", "--dry-run"}, {"--order"}),
        ("%to_gpu x --device ", {"0", "cuda:1", "cpu"}, {"x"}),
        ("%%gpu_launch --e", {"--each", "--env"}, {"--gpus"}),
        ("%gpu_launch --gpus ", {"0", "7", "auto"}, {"8"}),
        ("%gpu_doctor ", {"--report", "--json"}, {"pyproject.toml", "tests/"}),
        ("%gpu_cluster ", {"0", "auto", "stop", "restart"}, {"cpu"}),
        ("%gpus 2,0 ", {"--order", "--dry-run"}, {"1", "all"}),
        ("%gpus --dry-run ", {"1", "all"}, {"--order"}),
        ("%gpus auto --wait ", {"30m"}, {"pyproject.toml", "1"}),
        ("%gpu_launch --gpus 2,", {"0", "7"}, {"2", "auto"}),
        ("%gpu_launch ", {"torchrun", "accelerate", "deepspeed"}, {"0"}),
        ("%gpu_time ", {"on", "off", "report"}, {"0", "abs"}),
    ],
)
def test_tab(
    typed: Typed, shell: InteractiveShell, line: str, offers: set[str], not_offered: set[str]
) -> None:
    words = {completed.rsplit(" ", 1)[1].rsplit(",", 1)[-1] for completed in complete(shell, line)}
    assert offers <= words
    assert not not_offered & words


def test_tab_completes_a_uuid(typed: Typed, shell: InteractiveShell, machine: Machine) -> None:
    uuid = machine.gpus[4].uuid
    assert complete(shell, f"%gpus {uuid[:10]}") == [f"%gpus {uuid}"]
    assert complete(shell, f"%gpus 1,{uuid[:10]}") == [f"%gpus 1,{uuid}"]
    assert complete(shell, f"%gpus {uuid[:10].lower()}") == [f"%gpus {uuid}"]


def test_tab_completes_variables(typed: Typed, shell: InteractiveShell) -> None:
    shell.user_ns |= {"model": 1, "moment": 2, "_model": 3}
    assert complete(shell, "%to_gpu mo") == ["%to_gpu model", "%to_gpu moment"]
    assert complete(shell, "%to_cpu model mo") == ["%to_cpu model moment"]
    offered = complete(shell, "%where ")
    assert {"%where model", "%where moment"} <= set(offered)
    assert not {"%where abs", "%where _model", "%where %gpus"} & set(offered)
    assert "%where _model" in complete(shell, "%where _m")


@pytest.mark.parametrize(
    "line",
    [
        "%where d['a mo",
        "%where d['a --cl",
        '%gpu_fit model "x --e',
        "%to_gpu x d['mo",
    ],
)
def test_tab_leaves_what_is_within_an_expression_to_ipython(
    typed: Typed, shell: InteractiveShell, line: str
) -> None:
    shell.user_ns |= {"model": 1}
    magic, *words = line.split(" ")
    assert completion.complete(shell, magic, words) is None


def test_tab_offers_the_models_that_there_are(typed: Typed, shell: InteractiveShell) -> None:
    (offered,) = complete(shell, "%gpus auto --model n")
    assert offered.startswith("%gpus auto --model NVIDIA")


def test_a_magic_of_that_name_comes_back(shell: InteractiveShell) -> None:
    theirs = shell.magics_manager.magics["line"]["gpus"] = lambda _: "theirs"
    shell.run_line_magic("load_ext", "gpu_magic")
    shell.run_line_magic("unload_ext", "gpu_magic")
    assert shell.magics_manager.magics["line"].pop("gpus") is theirs


def test_a_mask_changed_by_the_user_stays_theirs(typed: Typed) -> None:
    typed("%gpus 2")
    typed("%env CUDA_VISIBLE_DEVICES=3")
    typed("%unload_ext gpu_magic")
    assert environment() == ("3", "PCI_BUS_ID")


def test_an_undone_choice_is_said(typed: Typed) -> None:
    typed("%gpus 2")
    assert typed("%reload_ext gpu_magic").text == (
        "Your choice is undone: CUDA_VISIBLE_DEVICES is unset again, so all GPUs are visible. "
        "Once gpu_magic is loaded, %gpus chooses again.\n"
    )


@pytest.mark.machine("2xT4", mask="0\n\x1b[31m1\udcff")
def test_a_mask_with_anything_in_it_is_shown_and_put_back(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    before = environment()
    shell.run_line_magic("load_ext", "gpu_magic")
    for line in ("%gpus", "%gpus reset", "%gpus 1"):
        shell.run_cell(line)
        shown = "".join(capsys.readouterr())
        assert "\x1b" not in shown
        assert "\udcff" not in shown
    shell.run_line_magic("unload_ext", "gpu_magic")
    assert environment() == before


@pytest.mark.machine("1xRTX-4090+1xT4", mask="0,1")
def test_what_was_wrong_at_the_start_is_said_of_the_start(typed: Typed) -> None:
    typed("%gpus 1")
    said = "At the start of this process: CUDA_VISIBLE_DEVICES is a list of numbers and"
    assert said in typed("%gpus").text


@pytest.mark.machine("1xA100-80GB+1xA100-80GB(3g.40gb,4g.40gb)")
def test_a_mig_instance_is_chosen_by_the_number_in_its_row(typed: Typed, machine: Machine) -> None:
    row = next(line for line in typed("%gpus").text.splitlines() if "4g.40gb MIG-" in line)
    assert row.split()[:2] == ["└", "1:1"]
    assert "cuda:0 = MIG instance 1:1 (SIMULATED" in typed("%gpus 1:1").text
    assert environment()[0] == machine.gpus[1].mig[1].uuid


@pytest.mark.machine("1xA100-80GB+1xA100-80GB(3g.40gb,4g.40gb)")
def test_tab_offers_the_numbers_of_mig_instances(typed: Typed, shell: InteractiveShell) -> None:
    assert complete(shell, "%gpus 1:") == ["%gpus 1:0", "%gpus 1:1"]
    typed("%gpus 1:1")
    assert complete(shell, "%%on_gpu smi:") == ["%%on_gpu smi:1:1"]
