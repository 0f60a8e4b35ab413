"""A `%%on_gpu` cell in a shell of this process: what IPython's input transformers see of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell


class Transformed:
    """An input transformer of the user's, which counts how often it is given a line."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, lines: list[str]) -> list[str]:
        # The outer cell has the body in it, below the magic; the body alone begins with its first line.
        self.lines += lines[:1]
        return lines

    def count(self, first: str) -> int:
        return self.lines.count(first)


@pytest.fixture
def transformed(shell: InteractiveShell) -> Iterator[Transformed]:
    """Return the user's transformer, in a shell with the extension loaded."""
    counter = Transformed()
    shell.input_transformers_cleanup.append(counter)
    shell.run_line_magic("load_ext", "gpu_magic")
    yield counter
    shell.input_transformers_cleanup.remove(counter)


def run(shell: InteractiveShell, cell: str) -> Any:
    result = shell.run_cell(cell, store_history=True)
    result.raise_error()
    return result.result


@pytest.mark.parametrize(
    ("cell", "bodies", "value"),
    [
        ("%%on_gpu cpu\nx = 6\nx * 7", ["x = 6\n"], 42),
        ("%%on_gpu cpu\n\n\nx = 6\nx * 7", ["x = 6\n"], 42),
        ("%%on_gpu cpu\nimport asyncio\nawait asyncio.sleep(0, result=42)", ["import asyncio\n"], 42),
        ("%%on_gpu cpu\nname = 'await'\nname", ["name = 'await'\n"], "await"),
        ("%%on_gpu cpu\n%%on_gpu cpu\nx = 6\nx * 7", ["%%on_gpu cpu\n", "x = 6\n"], 42),
        (
            "%%on_gpu cpu\n%%on_gpu cpu\nimport asyncio\nawait asyncio.sleep(0, result=42)",
            ["%%on_gpu cpu\n", "import asyncio\n"],
            42,
        ),
    ],
)
def test_a_body_is_transformed_once(
    shell: InteractiveShell, transformed: Transformed, cell: str, bodies: list[str], value: object
) -> None:
    assert run(shell, cell) == value
    assert transformed.lines == ["%%on_gpu cpu\n", *bodies]  # the cell, and each body


def test_what_the_cell_uses_is_found_in_the_same_body(
    shell: InteractiveShell, transformed: Transformed
) -> None:
    """`--mirror` asks whether the cell uses TensorFlow, before the cell is compiled."""
    assert run(shell, "%%on_gpu 0,1 --mirror --or-cpu\nx = 6\nx * 7") == 42
    assert transformed.count("x = 6\n") == 1


def test_nothing_of_a_cell_is_left_for_the_next(shell: InteractiveShell, transformed: Transformed) -> None:
    """Each run transforms the body anew: what the user's transformers do can have changed."""
    cell = "%%on_gpu cpu\nimport asyncio\nawait asyncio.sleep(0, result=ANSWER)"
    answers: list[str] = []

    def answer(lines: list[str]) -> list[str]:
        return [line.replace("ANSWER", answers[-1]) for line in lines]

    shell.input_transformers_cleanup.append(answer)
    for number in ("1", "2"):
        answers.append(number)
        shell.transform_cell(cell)  # a cell that is transformed, and does not run
        answers.append(f"{number}0")
        assert run(shell, cell) == int(answers[-1])
    shell.input_transformers_cleanup.remove(answer)
