"""The lines of magics: options, their values, and everything else."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpu_magic.errors import LineError
from gpu_magic.option_table import OPTIONS
from gpu_magic.shell.arguments import CODE, read, read_command, read_words
from gpu_magic.text import page_text
from tests.conftest import ROOT


def given(magic: str, line: str) -> dict[str, Any]:
    """Return what differs from an empty line."""
    empty = vars(read(magic, ""))
    return {name: value for name, value in vars(read(magic, line)).items() if value != empty[name]}


@pytest.mark.parametrize("magic", [command for command in OPTIONS if command.startswith("%")])
def test_nothing_is_given_in_an_empty_line(magic: str) -> None:
    for line in (
        "",
        "  ",
        "# a comment",
        "''" if magic not in ("%gpus", *CODE) else "",
    ):
        found = vars(read(magic, line))
        assert found.pop("request") == ""
        assert set(found.values()) <= {None, False}
        assert len(found) == len(set(OPTIONS[magic]))


@pytest.mark.parametrize(
    ("magic", "line", "expected"),
    [
        ("%gpus", "1, 3", {"request": "1, 3"}),
        ("%gpus", "'1,3'  # the quiet ones --force", {"request": "1,3"}),
        ("%gpus", "-1 0", {"request": "-1 0"}),
        ("%gpus", "1 -", {"request": "1 -"}),
        ("%gpus", "--order pci 1", {"order": "pci", "request": "1"}),
        ("%gpus", "1 '--order' \"pci\"", {"order": "pci", "request": "1"}),
        ("%gpus", "1 --order pci --order fastest", {"order": "fastest", "request": "1"}),
        ("%gpus", "1 --dry --str", {"dry_run": True, "strict": True, "request": "1"}),
        ("%gpus", "--growth 1 --force 2", {"growth": True, "force": True, "request": "1 2"}),
        ("%gpus", "1 --memory-limit 8 GB --strict", {"memory_limit": "8 GB", "strict": True, "request": "1"}),
        ("%gpus", "1 --memory-limit=8 GB", {"memory_limit": "8 GB", "request": "1"}),
        ("%gpus", "1 --memory-limit -1", {"memory_limit": "-1", "request": "1"}),
        ("%gpus", "1 --memory-l 8GB", {"memory_limit": "8GB", "request": "1"}),
        ("%gpus", "1 --wait 30 min --growth", {"wait": "30 min", "growth": True, "request": "1"}),
        ("%gpus", "--wait 1h 30m 1", {"wait": "1h 30m", "request": "1"}),
        ("%gpus", "--wait 1h 1", {"wait": "1h", "request": "1"}),
        ("%gpu_fit", "model --batch 64 d", {"batch": "64", "request": "model d"}),
        ("%gpu_fit", "model eval", {"request": "model eval"}),
        ("%gpus", "1 --or=fastest", {"order": "fastest", "request": "1"}),
        ("%gpu_cluster", "-n2", {"count": "2"}),
        ("%gpu_cluster", "-n=2 --force", {"count": "2", "force": True}),
        ("%%on_gpu", "-v 0", {"verbose": True, "request": "0"}),
        ("%%on_gpu", "0 --only torch, jax --verb", {"only": "torch, jax", "verbose": True, "request": "0"}),
        ("%%on_gpu", "0 --background eval -v", {"background": "eval", "verbose": True, "request": "0"}),
        ("%%on_gpu", "0 --background", {"background": "", "request": "0"}),
        ("%%on_gpu", "0 --background --or-cpu", {"background": "", "or_cpu": True, "request": "0"}),
        ("%to_gpu", "x --device smi:3 y", {"device": "smi:3", "request": "x y"}),
        ("%to_gpu", "data['x'] \"y\"", {"request": "data['x'] \"y\""}),
        ("%to_gpu", "x --or-cpu", {"or_cpu": True, "request": "x"}),
        ("%to_gpu", "x --numpy=torch", {"numpy": "torch", "request": "x"}),
    ],
)
def test_what_is_given(magic: str, line: str, expected: dict[str, Any]) -> None:
    assert given(magic, line) == expected


# Typed, they stay as they are, from the first character to the last.
EXPRESSIONS = [
    'd["a  b"]',
    "d['a #1']",
    'd["a\tb"]',
    "d['a --all b']",
    "d['''it's  \"so\" --x #1''']",
    r'd[r"\\"]["a  b"]',
    r"d['it\'s  #1']",
    'd[f"{n:>3}  {m!r} {{}} $n"]',
    'd[f"{e["a  b #1"]}"]',
    "d['größe  \N{IDEOGRAPHIC SPACE}名']",
    "step(x,  'a')",
    'step(  {"a  b": x}["a  b"],\t[1,  2]  )',
    "'a  b'.join(c)",
]


@pytest.mark.parametrize("comment", ["", "  # it's the first --all", "\t#", ' # "', " # [1"])
def test_an_expression_stays_as_typed(comment: str) -> None:
    for expression in EXPRESSIONS:
        for magic in "%where", "%to_gpu", "%to_cpu", "%gpu_fit":
            assert given(magic, f"{expression}{comment}") == {"request": expression}
            assert given(magic, f" y  {expression} z {comment}") == {"request": f"y {expression} z"}
        assert given("%to_gpu", f"{expression} --device 1{comment}") == {"request": expression, "device": "1"}
        for typed in f"--loss {expression}", f"--loss={expression}":
            found = given("%gpu_fit", f"m {typed} --amp b{comment}")
            assert found == {"loss": expression, "amp": True, "request": "m b"}


def test_what_stands_in_quotes_behind_an_option_is_its_expression() -> None:
    assert given("%gpu_fit", "m --loss 'lambda o, t: o'")["loss"] == "lambda o, t: o"


def test_a_name_is_read_without_the_marks_that_a_page_puts_around_it() -> None:
    assert read("%gpu_ps", f"end {page_text('מחברת חדשה')}.ipynb").request == "end מחברת חדשה.ipynb"


def test_names_in_braces_stand_for_values_but_in_a_comment() -> None:
    def expand(text: str) -> str:
        return text.replace("{n}", "1, 3 --force").replace("{w}", "1h")

    found = vars(read("%gpus", "{n} --wait {w}  # {n}", expand))
    assert found["request"] == "1, 3"
    assert (found["force"], found["wait"]) == (True, "1h")


@pytest.mark.parametrize(
    ("magic", "line", "says"),
    [
        ("%gpus", "1 --forcd", "There is no --forcd. Did you mean --force? %gpus? explains the options."),
        ("%gpus", "1 --free", "There is no --free. Did you mean --min-free? %gpus? explains the options."),
        ("%gpus", "1 -growth", "There is no -growth. Did you mean --growth? %gpus? explains the options."),
        ("%gpus", "1 --dry_run", "There is no --dry_run. Did you mean --dry-run? %gpus? explains the options."),
        ("%gpu_fit", "m --batch-size 2", "There is no --batch-size. Did you mean --batch? %gpu_fit? explains the options."),
        ("%to_cpu", "x --xyz", "There is no --xyz. There are --all and --dry-run. %to_cpu? explains the options."),
        ("%gpus", "auto -n2", "There is no -n. There are --only-free, --min-free, --model and more. %gpus? explains the options."),
        ("%gpu_panel", "--strict", "There is no --strict. %gpu_panel takes no options."),
        ("%gpu_cluster", "--stop", "There is no --stop. Try %gpu_cluster stop"),
        ("%gpus", "--none --dry-run", "There is no --none. Try %gpus none --dry-run"),
        ("%gpus", "--dry-run --wait 1 h --all 3 --strict", "There is no --all. Try %gpus all --dry-run --wait 1 h --strict"),
        ("%gpus", "3 --reset", "There is no --reset. Try %gpus reset"),
        ("%gpus", "--auto=2 --dry-run", "There is no --auto. Try %gpus auto:2 --dry-run"),
        ("%gpus", "--auto 2", "There is no --auto. Try %gpus auto:2"),
        ("%gpu_ps", "--kill --end 1234 --yes", "There is no --end. Try %gpu_ps end --kill 1234 --yes"),
        ("%gpu_tasks", "train --stop", "There is no --stop. Try %gpu_tasks stop train"),
        ("%%on_gpu", "0 --o", "--o could be --only or --or-cpu. %%on_gpu? explains the options."),
        ("%gpus", "1 --f", "--f is too short. Type --force in full."),
        ("%gpus", "1 --order", "--order needs a value: pci or fastest. %gpus? explains the options."),
        ("%gpus", "1 --order --force", "--order needs a value: pci or fastest. %gpus? explains the options."),
        ("%gpus", "1 --order -1", "--order is pci or fastest, not -1. %gpus? explains the options."),
        ("%to_gpu", "x --numpy y", "--numpy is torch, jax or cupy, not y. %to_gpu? explains the options."),
        ("%gpu_cluster", "-n", "-n needs a value. Try -n 2. %gpu_cluster? explains the options."),
        ("%gpus", "1 --wait", "--wait needs a value. Try --wait 30m. %gpus? explains the options."),
        ("%gpus", "1 --growth=yes", "--growth takes no value. %gpus? explains the options."),
        ("%gpus", "--restart", "--restart names no GPU. Name GPUs before the options: %gpus auto --restart"),
        ("%gpus", "--wait 30m", "--wait 30m names no GPU. Name GPUs before the options: %gpus auto --wait 30m"),
        ("%gpus", "''", "'' names no GPU. Name GPUs before the options: %gpus auto --only-free"),
        ("%gpus", "--min-free 9GB auto:2", "--min-free 9GB auto:2 names no GPU. Name GPUs before the options: %gpus auto:2 --min-free 9GB"),
        ("%gpus", "--memory-limit 8 GB 1 --dry-run", "--memory-limit 8 GB 1 --dry-run names no GPU. Name GPUs before the options: %gpus 1 --memory-limit 8 GB --dry-run"),
        ("%gpus", "--memory-limit 8 GB --growth", "--memory-limit 8 GB --growth names no GPU. Name GPUs before the options: %gpus auto --memory-limit 8 GB --growth"),
        ("%gpus", "--min-free 9GB please", "--min-free 9GB please names no GPU. Name GPUs before the options: %gpus auto --only-free"),
    ],
)  # fmt: skip
def test_one_line_says_what_is_wrong(magic: str, line: str, says: str) -> None:
    with pytest.raises(LineError) as caught:
        read(magic, line)
    assert str(caught.value) == says


@pytest.mark.parametrize(
    ("magic", "option"),
    [
        (magic, option)
        for magic, options in OPTIONS.items()
        for option in ("--all", "--force", "--kill", "--restart", "--yes")
        if option in options
    ],
)
def test_an_option_that_can_do_harm_is_typed_in_full(magic: str, option: str) -> None:
    is_launch = "launch" in magic
    for end in range(3, len(option)):
        with pytest.raises(LineError):
            read_words(magic, [option[:end], "true"]) if is_launch else read(magic, f"1 {option[:end]}")
    assert vars(read_words(magic, [option]) if is_launch else read(magic, f"1 {option}"))[option[2:]] is True


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (
            "torchrun train.py --lr 1e-3   # rank 0 on GPU 2; it's the first",
            ["torchrun", "train.py", "--lr", "1e-3"],
        ),
        ("# nothing", []),
        ("python a.py --color #fff", ["python", "a.py", "--color"]),
        ("python a.py b#c #", ["python", "a.py", "b#c"]),
        ("python a.py '#1' \\#2 \"a #3\" \\ #4 # 5", ["python", "a.py", "#1", "#2", "a #3", " #4"]),
    ],
)
def test_a_comment_is_no_part_of_a_command(line: str, command: list[str]) -> None:
    assert read_command("%gpu_launch", line).command == command


def test_the_commands_that_the_documentation_shows_have_no_comments() -> None:
    page = (ROOT / "docs" / "how-to" / "launching.md").read_text()
    commands = [
        read_command("%gpu_launch", line).command
        for line in re.findall(r"^%gpu_launch (.*)", page, re.MULTILINE)
    ]
    assert commands == [
        ["torchrun", "train.py", "--lr", "1e-3"],
        ["accelerate", "launch", "train.py"],
        ["deepspeed", "train.py", "--deepspeed_config", "ds.json"],
        ["torchrun", "train.py", "--lr", "1e-3"],
    ]
