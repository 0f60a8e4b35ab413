"""What the panel has above the rows of many GPUs: a sum by model, and which rows are shown in which order."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.panel import open_panel, picture

if TYPE_CHECKING:
    from tests.browser.lab import Lab, Notebook

MANY = "16xA100-80GB+8xT4 seed=7 clock=0"


def open_many(lab: Lab, machine: str = MANY) -> Notebook:
    notebook = open_panel(lab, kernel=lab.add_kernel("many", GPU_MAGIC_SIMULATE=machine))
    notebook.panel.locator(".gm-host").hover()  # and not a row: those that somebody points at stay
    return notebook


def keys(notebook: Notebook) -> list[int]:
    found: list[str] = notebook.page.eval_on_selector_all(
        ".gm-row", "rows => rows.map(row => row.dataset.key)"
    )
    return list(map(int, found))


def free_memory(notebook: Notebook) -> list[float]:
    """Return the free memory of each row, as its figures say, in GiB."""
    sizes = notebook.page.locator(".gm-row .gm-size").all_text_contents()
    pairs = [re.findall(r"[\d.]+", size) for size in sizes]
    return [round(float(total) - float(used), 1) for used, total in pairs]


def test_models_are_summed_up(lab: Lab) -> None:
    notebook = open_many(lab)
    free = notebook.page.locator(".gm-row.gm-free")
    of_model = [free.filter(has_text=model).count() for model in ("A100", "T4")]
    assert all(of_model)
    expect(notebook.panel.locator(".gm-overview > span").first).to_have_text(
        f"16 \u00d7 A100-SXM4-80GB: {of_model[0]} free · 8 \u00d7 Tesla T4: {of_model[1]} free"
    )
    picture(notebook, "24-gpus")


def test_up_to_sixteen_are_seen_at_a_glance(lab: Lab) -> None:
    notebook = open_many(lab, "16xA100-80GB clock=0")
    expect(notebook.panel.locator(".gm-overview")).to_be_hidden()


def test_the_free_ones_alone_and_what_was_clicked(lab: Lab) -> None:
    notebook = open_many(lab)
    busy = notebook.page.locator(".gm-row.gm-busy").last
    clicked = int(busy.get_attribute("data-key") or "")
    busy.click()
    notebook.panel.get_by_label("free only").check()
    free = notebook.page.locator(".gm-row.gm-free").count()
    expect(notebook.page.locator(".gm-row")).to_have_count(free + 1)
    assert clicked in keys(notebook)
    notebook.panel.get_by_label("free only").uncheck()
    expect(notebook.page.locator(".gm-row")).to_have_count(24)


def test_the_most_free_memory_first(lab: Lab) -> None:
    notebook = open_many(lab)
    assert keys(notebook) == list(range(24))
    notebook.panel.get_by_label("most free memory first").check()
    expect(notebook.page.locator(".gm-row").first).not_to_have_attribute("data-key", "0")
    notebook.page.locator(".gm-row").last.scroll_into_view_if_needed()
    assert free_memory(notebook) == sorted(free_memory(notebook), reverse=True)
    assert sorted(keys(notebook)) == list(range(24))
    picture(notebook, "24-gpus-sorted")
    # A range goes over the rows as they are seen.
    rows = notebook.page.locator(".gm-row")
    rows.nth(0).click()
    rows.nth(2).click(modifiers=["Shift"])
    expect(notebook.line).to_have_text("%gpus " + ",".join(map(str, keys(notebook)[:3])))


def test_instances_stay_with_their_gpu(lab: Lab) -> None:
    notebook = open_many(lab, f"8xA100-80GB({','.join(['1g.10gb'] * 7)}) seed=7 clock=0")
    expect(notebook.page.locator(".gm-row")).to_have_count(64)
    notebook.panel.get_by_label("most free memory first").check()
    labels = notebook.page.locator(".gm-row .gm-label").all_text_contents()
    gpus = [place for place, label in enumerate(labels) if label.isdigit()]
    assert gpus == list(range(0, 64, 8))
