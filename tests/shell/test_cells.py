"""The blocks of cells, whatever they are for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from gpu_magic.shell.cells import blocks_of

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from gpu_magic.shell.cells import End
    from tests.conftest import Typed

LONG = (
    "The block could not end, because a library has changed the device. This line does not fit into a page."
)


def test_an_error_at_the_end_of_a_block_is_the_cell_s(typed: Typed, shell: InteractiveShell) -> None:
    """So "Run All" stops there. An error of the cell itself goes before it."""

    def begin(_: object) -> End:
        def end(_: BaseException | None) -> None:
            raise OSError("the block could not end")

        return end

    shell.user_ns["begin"] = lambda: blocks_of(shell).run(None, begin)
    ended, failed = typed("begin()\n1"), typed("begin()\n1 / 0")
    assert isinstance(ended.error, OSError)
    assert isinstance(failed.error, ZeroDivisionError)
    for cell in ended, failed:
        assert "OSError: the block could not end" in cell.text
    assert typed("2").value == 2


def test_a_usage_error_at_the_end_of_a_block_is_one_text_that_fits_a_page(
    typed: Typed, shell: InteractiveShell
) -> None:
    shell.user_ns["begin"] = lambda: blocks_of(shell).run(None, lambda _: end)

    def end(_: BaseException | None) -> None:
        raise UsageError(LONG)

    assert typed("begin()").text == f"UsageError: {LONG}\n"
    shell.kernel = None  # type: ignore[attr-defined] # ipykernel's shells have one
    shown = typed("begin()")
    assert isinstance(shown.error, UsageError)
    assert " ".join(shown.text.split()) == f"UsageError: {LONG}"
    assert max(map(len, shown.text.splitlines())) <= 70


def test_plain_cells_are_not_looked_at_before_one_has_a_magic_on_top(
    typed: Typed, shell: InteractiveShell
) -> None:
    """If there is an AST transformer, IPython looks at each node of every cell."""
    before = list(shell.ast_transformers)
    typed("1")
    assert shell.ast_transformers == before
    for _ in range(2):
        assert typed("%%on_gpu cpu\n3").value == 3
        assert len(shell.ast_transformers) == len(before) + 1
