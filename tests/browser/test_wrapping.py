"""The lines of a choice and of a refusal break between words, in JupyterLab and Notebook 7."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.browser.panel import APPS, PICTURES

if TYPE_CHECKING:
    from tests.browser.lab import Lab, Notebook

# The words of an output that are on more than one line, though they fit into one. A hyphen can end a line.
BROKEN = r"""cell => {
    const found = [];
    for (const output of notebook.content.widgets[cell].node.querySelectorAll('.jp-OutputArea-output')) {
        const texts = document.createTreeWalker(output, NodeFilter.SHOW_TEXT);
        for (let text; (text = texts.nextNode());) {
            for (const word of text.data.matchAll(/[^\s-]+/g)) {
                const range = document.createRange();
                range.setStart(text, word.index);
                range.setEnd(text, word.index + word[0].length);
                const lines = [...range.getClientRects()];
                const width = lines.reduce((sum, line) => sum + line.width, 0);
                if (lines.length > 1 && width < output.clientWidth) found.push(word[0]);
            }
        }
    }
    return found;
}"""


def broken_words(notebook: Notebook, cell: int) -> list[str]:
    found: list[str] = notebook.page.evaluate(BROKEN, cell)
    return found


@APPS
def test_lines_break_between_words(lab: Lab, app: str) -> None:
    cells = (
        "%env GPU_MAGIC_SIMULATE=8xA100-80GB clock=0\n%load_ext gpu_magic",
        "%gpus auto:6",
        "import gpu_magic; gpu_magic.choose('2,0')",
        "%gpus auto:6 --only-free",
        "print('one long text with a word ' * 40)",
    )
    notebook = lab.open(*cells, app=app, width=420)
    if app == "lab":
        notebook.page.evaluate("jupyterapp.shell.collapseLeft()")
    for cell in range(len(cells)):
        notebook.run(cell)
    PICTURES.mkdir(parents=True, exist_ok=True)
    notebook.page.screenshot(path=PICTURES / f"{app}-choice-420.png")
    assert "is in use by" in notebook.outputs(1)
    for cell in (1, 2):
        assert broken_words(notebook, cell) == []
    assert broken_words(notebook, 4)  # as the page breaks what is printed
    notebook.page.set_viewport_size({"width": 700, "height": 900})
    assert len(notebook.outputs(3).splitlines()) > 2
    notebook.page.screenshot(path=PICTURES / f"{app}-refusal-700.png")
    assert broken_words(notebook, 3) == []
