"""An option has one entry in the table, and all places have it from there: this walks over all of them."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any, get_type_hints

import pytest

import gpu_magic
from docs.reference import PAGES  # type: ignore[attr-defined]  # mypy takes the folder of that name
from gpu_magic.command_line import main
from gpu_magic.errors import ChoiceError
from gpu_magic.gpus.options import Options, split_request
from gpu_magic.kernelspec.begin import begin
from gpu_magic.option_table import CHOICE, FILTERS, OPTIONS, ChoiceOptions, Kind, Option
from gpu_magic.panel import script
from gpu_magic.process.session import current
from gpu_magic.shell.arguments import read, read_action, read_words
from gpu_magic.shell.completion import complete
from gpu_magic.shell.extension import MAGICS

if TYPE_CHECKING:
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

    from tests.conftest import Typed

# Every option of every command, and those of a choice that are typed.
ALL = [(command, one) for command, options in OPTIONS.items() for one in options.values()]
TYPED = {name: one for name, one in CHOICE.items() if one.name.startswith("--")}
FOR_AUTO = {name: one for name, one in FILTERS.items() if not one.with_numbers}

of_choice = pytest.mark.parametrize("name", TYPED)


def value_of(one: Option) -> Any:
    """Return a valid value, as Python has it."""
    return True if one.kind is Kind.FLAG else one.example


def words_of(one: Option) -> list[str]:
    """Return the words that are typed for the option, with a valid value."""
    return [one.name] if one.kind is Kind.FLAG else [one.name, one.example]


pytestmark = pytest.mark.usefixtures("machine")


def test_the_table_has_each_option_once_and_whole() -> None:
    assert {name: one.attribute for name, one in CHOICE.items()} == {name: name for name in CHOICE}
    assert set(Options._fields) == set(CHOICE)
    for command, one in ALL:
        assert one.help, one.name
        assert "\n" not in one.help
        assert one.example or one.kind is Kind.FLAG, f"{command} {one.name} has no example"
        assert not isinstance(one.kind, tuple) or one.example in one.kind


@pytest.mark.parametrize("command", OPTIONS)
def test_every_command_reads_its_options(command: str) -> None:
    for one in OPTIONS[command].values():
        words = words_of(one)
        if command.endswith("launch"):
            found = vars(read_words(command, [*words, "--", "true"]))
        elif command.startswith("%"):
            found = vars(read(command, f"1 {' '.join(words)}"))
        else:
            found = vars(read_action(command, words))
        if one.kind is not Kind.PAIRS and one.name != "--count":  # which are read on
            assert found[one.attribute] == value_of(one)


@pytest.mark.parametrize("name", MAGICS)
def test_tab_and_the_help_of_a_magic_have_its_options(
    name: str, shell: InteractiveShell, typed: Typed
) -> None:
    kinds = MAGICS[name][0]
    command = f"%{name}" if f"%{name}" in OPTIONS else f"%%{name}"
    shown = shell.magics_manager.magics[kinds[0]][name].__doc__
    assert "{options}" not in shown
    for one in OPTIONS[command].values():
        assert f"{one.forms}  " in shown
        offers = complete(shell, command, ["x", "--"])
        assert offers
        assert one.name in offers.texts
    if "line" in kinds:
        assert shown.strip() in typed(f"%{name} --help").text


@pytest.mark.parametrize("command", [one for one in OPTIONS if not one.startswith("%")])
def test_the_help_in_a_terminal_has_the_options(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split()[1:], "--help"]) == 0
    shown = capsys.readouterr().out
    assert [one for one in OPTIONS[command].values() if f"{one.forms}  " not in shown] == []


def test_the_reference_has_all_options() -> None:
    page = "\n".join(write() for write in PAGES.values())
    assert [one for _, one in ALL if f"| `{one.forms}` | {one.help}" not in page] == []


# An option of a choice, in addition.


@of_choice
def test_python_takes_it(name: str) -> None:
    one = TYPED[name]
    functions: list[Any] = [
        gpu_magic.choose,
        gpu_magic.wait_for,
        *([gpu_magic.launch] if name in FILTERS else []),
    ]
    for function in functions:
        parameter = inspect.signature(function).parameters[name]
        assert parameter.default == one.default
        assert parameter.annotation == get_type_hints(ChoiceOptions)[name]
        assert f"\n    {name}\n        {one.help[0].upper()}" in (function.__doc__ or "")
    choice = gpu_magic.choose("auto", dry_run=True, **{name: value_of(one)})
    assert len(choice.devices) == 1
    gpu_magic.wait_for(**{name: value_of(one)}).close()


@of_choice
def test_the_magic_does_the_same_and_python_checks_its_value(name: str, typed: Typed) -> None:
    one = TYPED[name]
    assert "Dry run: would set" in typed(f"%gpus auto {' '.join(words_of(one))} --dry-run").text
    # No option takes this.
    wrong: Any = "yes" if one.kind is Kind.FLAG else ["x"]
    for function in gpu_magic.choose, gpu_magic.wait_for:
        with pytest.raises((ChoiceError, TypeError)):
            function("auto", **{name: wrong})


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_filters_the_gpus_of_a_launch(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = words_of(FILTERS[name])
    assert main(["launch", "--dry-run", "--gpus", "auto", *words, "--", "true"]) == 0
    assert capsys.readouterr().out.startswith("CUDA_VISIBLE_DEVICES=0 ")


@of_choice
def test_a_kernel_starts_with_it_or_says_that_it_can_not(
    name: str, shell: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    one = TYPED[name]
    notebook = tmp_path / "train.ipynb"
    asked: dict[str, object] = {"gpus": "auto:2", name: value_of(one)}
    notebook.write_text(json.dumps({"metadata": {"gpu_magic": asked}}))
    monkeypatch.setenv("JPY_SESSION_NAME", str(notebook))
    monkeypatch.setattr(shell, "parent_header", {}, raising=False)
    begin(shell, "3")
    shell.run_cell("1", store_history=True)
    said = capsys.readouterr().out
    if one.at_start:
        assert current().chosen is not None
        assert gpu_magic.choose("auto:2", dry_run=True).devices
        assert "Ignored" not in said
    else:
        assert f'"gpu_magic" has no "{name}"' in said
    installed = main(["kernel", "install", "--prefix", str(tmp_path), "--name", "k", *words_of(one)])
    assert installed == (0 if one.at_start else 2)
    if one.at_start:
        argv = json.loads((tmp_path / "share/jupyter/kernels/k/kernel.json").read_text())["argv"]
        assert argv[-1] == " ".join(["auto", *words_of(one)])


@of_choice
def test_the_panel_has_it_and_the_kernel_takes_it_from_there(name: str) -> None:
    one = TYPED[name]
    options = json.loads(script().partition("const OPTIONS = ")[2].partition(";\n")[0])
    request = f"auto:2 {' '.join(words_of(one))}"
    if one.in_panel:
        assert {shown["name"]: shown["help"] for shown in options}[one.name]
        devices, found = split_request(request)
        assert (devices, found) == ("auto:2", Options(**{name: value_of(one)}))
        assert f"{devices}{found}" == request
    else:
        assert one.name not in {shown["name"] for shown in options}
        with pytest.raises(ChoiceError):
            split_request(request)


@pytest.mark.parametrize("name", FOR_AUTO)
def test_a_filter_of_auto_is_refused_with_numbers_and_not_saved(
    name: str, typed: Typed, capsys: pytest.CaptureFixture[str]
) -> None:
    one = FOR_AUTO[name]
    given = " ".join(words_of(one))
    for wanted in ("1,3", "all", "none"):
        with pytest.raises(ChoiceError, match=f"{given} goes with auto"):
            gpu_magic.choose(wanted, **{name: value_of(one)})
        assert "goes with auto" in typed(f"%gpus {wanted} {given}").text
        assert main(["launch", "--gpus", wanted, *words_of(one), "--", "true"]) == 2
        assert main(["kernel", "install", "--gpus", wanted, *words_of(one)]) == 2
    assert gpu_magic.choose("auto", dry_run=True).mask == "0"  # nothing was chosen
    assert name not in Options(**{name: value_of(one)}).to_save


@of_choice
def test_all_other_options_are_saved(name: str) -> None:
    options = Options(**{name: value_of(TYPED[name])})
    kept = {} if name in FOR_AUTO else {name: value_of(TYPED[name])}
    assert json.loads(json.dumps(options.to_save)) == kept
    assert Options.saved(kept) == (Options() if name in FOR_AUTO else options)


@pytest.mark.parametrize(
    ("saved", "value"),
    [("growth", "no"), ("growth", 1), ("order", "slow"), ("min_free", []), ("nothing", 1), ("model", 5)],
)
def test_a_saved_choice_that_is_invalid_is_refused(saved: str, value: object) -> None:
    with pytest.raises(ChoiceError):
        Options.saved({saved: value})


@pytest.mark.parametrize(
    ("value", "number"), [(60, 60), ("60", 60), ("59.5", 59.5), (60.0, 60), (None, None)]
)
def test_a_number_is_read_as_one(value: object, number: float | None) -> None:
    option = Option("--limit", Kind.NUMBER, "a number", "60")
    assert option.check(value) == number
    assert type(option.check(value)) is type(number)


@pytest.mark.parametrize("value", ["warm", "", True, "nan", "inf", [60], 10**400])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(ChoiceError, match="is not a number"):
        Option("--limit", Kind.NUMBER, "a number", "60").check(value)


def test_an_argument_that_there_is_not_is_named_with_the_nearest() -> None:
    with pytest.raises(TypeError, match=r"'gpuss'\. Did you mean gpus"):
        gpu_magic.launch("true", gpuss="0")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="Did you mean min_free"):
        gpu_magic.choose("auto", min_fre="20GB")  # type: ignore[call-arg]
