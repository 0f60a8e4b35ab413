"""Writes CONTRIBUTING's map of the package: each folder and file with the first line of its docstring.

Usage: python -m docs.map      (a test fails where the map is not what this would write)
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.test_architecture import ROOMS

__all__ = ["CONTRIBUTING", "draw", "insert"]

ROOT = Path(__file__).parent.parent
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- map: python -m docs.map -->\n```\n", "```\n<!-- end of map -->\n"
WIDTH = 30  # of the names


def draw(package: Path = ROOT / "gpu_magic") -> str:
    """Return the map of a package: its modules first, then its folders."""
    return "".join(f"{line}\n" for line in [f"{package.name}/", *_lines(package, "  ")])


def insert(text: str, tree: str) -> str:
    """Return a text with the map between its two markers replaced."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{tree}{END}{after}"


def _lines(folder: Path, indent: str) -> list[str]:
    lines = []
    for path in sorted(folder.iterdir(), key=_order):
        if path.is_dir() and (path / "__init__.py").exists():
            lines += [_line(f"{indent}{path.name}/", path / "__init__.py"), *_lines(path, f"{indent}  ")]
        elif path.suffix in (".py", ".js", ".css") and (path.name != "__init__.py" or indent == "  "):
            lines.append(_line(f"{indent}{path.name}", path))
    return lines


def _order(path: Path) -> tuple[bool, int, str]:
    """Put modules before folders, and rooms in the order in which they may import each other."""
    return path.is_dir(), ROOMS.index(path.name) if path.name in ROOMS else 0, path.name


def _line(name: str, path: Path) -> str:
    return f"{name:<{WIDTH}}{_first_line(path)}".rstrip()


def _first_line(path: Path) -> str:
    """Return the first line of a module's docstring, or of the comment at the head of a script or a style."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
    comment = re.match(r"\s*(?://|/\*)\s*(.*?)\s*(?:\*/)?\s*$", source.partition("\n")[0])
    return comment[1] if comment else ""


if __name__ == "__main__":
    CONTRIBUTING.write_text(insert(CONTRIBUTING.read_text(encoding="utf-8"), draw()), encoding="utf-8")
