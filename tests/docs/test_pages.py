"""The pages that are written by scripts are not old, and links lead somewhere."""

from __future__ import annotations

import re
from urllib.parse import unquote

import gpu_magic
from docs.blocks import pages
from docs.reference import PAGES  # type: ignore[attr-defined] # the folder beside it has its name
from tests.conftest import ROOT

README = ROOT / "README.md"
CONSTRAINTS = ROOT / "tests" / "constraints.txt"
# All that stands in the repository for readers, and not only what the site has.
TEXTS = sorted({*pages(), *ROOT.glob("*.md"), *ROOT.glob("benchmarks/*.md"), *ROOT.glob("tests/*/*.md")})


def test_the_reference_is_what_the_source_says() -> None:
    for page, write in PAGES.items():
        assert page.read_text(encoding="utf-8") == write(), f"{page.name}: run python -m docs.reference"


def test_every_public_name_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    shown = re.findall(r"^(?:::: [\w.]+\.|### )(\w+)$", text, re.MULTILINE)
    public = {name for name in dir(gpu_magic) if not name.startswith(("_", "load_", "unload_"))}
    assert public - set(shown) == set()
    for home, name in re.findall(r"^::: ([\w.]+)\.(\w+)$", text, re.MULTILINE):
        assert hasattr(__import__(home, fromlist=[name]), name), f"{home}.{name}"


def slugs(text: str) -> set[str]:
    """Return the anchors of a page, as mkdocs makes them, and GitHub for plain words."""
    plain = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    found = set()
    for heading in re.findall(r"^#+ (.*)$", plain, re.MULTILINE):
        given = re.search(r"\{#([\w-]+)\}", heading)
        words = re.sub(r"[^\w\s-]", "", heading.lower()).strip()
        found.add(given[1] if given else re.sub(r"[\s-]+", "-", words))
    return found


def links(text: str) -> list[str]:
    plain = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"\]\(([^)\s]+)\)", plain) + re.findall(r'(?:src|srcset)="([^"]+)"', plain)


def test_links_lead_somewhere() -> None:
    broken = []
    for page, link in ((text, link) for text in TEXTS for link in links(text.read_text(encoding="utf-8"))):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = page.parent / path if path else page
        is_image = anchor in ("only-light", "only-dark")
        if not target.exists() or (
            anchor and not is_image and anchor not in slugs(target.read_text(encoding="utf-8"))
        ):
            broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert broken == []


def test_every_page_is_in_the_navigation() -> None:
    named = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    there = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert there - named == {"package.md"}
    assert named - there == set()


def test_three_introductions_are_one_text() -> None:
    text = README.read_text(encoding="utf-8")
    intro = text[text.index("\n\n") : text.index("**Status:**")]
    for page in ("index.md", "package.md"):
        assert intro in (ROOT / "docs" / page).read_text(encoding="utf-8"), (
            f"docs/{page} says it in other words"
        )


def test_front_ends_are_tried_in_the_versions_that_their_pages_name() -> None:
    pinned = dict(re.findall(r"^([\w-]+)==(\d+\.\d+)", CONSTRAINTS.read_text().lower(), re.MULTILINE))
    named = {
        name.lower(): version
        for page in pages()
        for sentence in re.findall(r"Tried with (.+?)\.\s", page.read_text(encoding="utf-8"))
        for name, version in re.findall(r"(\w+) (\d+\.\d+)", sentence)
    }
    assert {
        "jupyterlab",
        "notebook",
        "marimo",
        "papermill",
        "nbclient",
        "nbconvert",
        "ipython",
    } == named.keys()
    assert named == {name: pinned[name] for name in named}
