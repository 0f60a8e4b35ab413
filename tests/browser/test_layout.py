"""The panel's layout at every width, with narrow and wide fonts: a page with the front end's part alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gpu_magic.testing import simulate
from gpu_magic.widget import joined
from gpu_magic.widget.panel import Panel

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FONTS = ["sans-serif", "serif", "monospace", "sans-serif; letter-spacing: 1px"]
SHOW = """async ([script, state]) => {
    const url = URL.createObjectURL(new Blob([script], {type: 'text/javascript'}));
    const widget = (await import(url)).default();
    widget.initialize({model: {get: name => name === 'full_state' ? state : '', on() {}, send() {}}});
    window.box = document.body.appendChild(document.createElement('div'));
    widget.render({el: box});
}"""
# Returns the classes of what is wrong: beyond the panel's edge, cut off, over its neighbor.
WRONG = """width => {
    box.style.width = `${width}px`;
    const panel = box.querySelector('.gm-panel');
    const edge = panel.getBoundingClientRect().right + 1;
    const wrong = [...panel.querySelectorAll('*')].filter(one => one.checkVisibility() &&
        !one.closest('.gm-headings') && one.getBoundingClientRect().right > edge);
    const whole = '.gm-badge, .gm-label, .gm-memory, .gm-size, .gm-util, .gm-percent, .gm-heat';
    wrong.push(...[...panel.querySelectorAll(whole)].filter(one => one.checkVisibility() &&
        one.scrollWidth > one.clientWidth + 1));
    for (const row of panel.querySelectorAll('.gm-row')) {
        const cells = [...row.children].filter(one => one.checkVisibility() && one.textContent);
        const boxes = cells.map(one => one.getBoundingClientRect());
        boxes.forEach((one, index) => boxes.forEach(other => {
            if (one.left < other.left && one.right > other.left + 1 &&
                one.top < other.bottom - 2 && other.top < one.bottom - 2) wrong.push(cells[index]);
        }));
    }
    if (panel.scrollWidth > panel.clientWidth) wrong.push(panel);
    return [...new Set(wrong.map(one => one.className || one.tagName))];
}"""


def state_of(profile: str) -> dict[str, Any]:
    """Return what a page gets of a simulated machine with work on it."""
    with simulate(profile) as machine:
        machine.gpus[-1].run("train.py --config everything.yaml", "a-rather-long-name", 60 << 30, work=97)
        if len(machine.gpus) > 2:
            machine.gpus[2].lose()
        panel = Panel()
        state: dict[str, Any] = json.loads(json.dumps(panel.state.full_state()))
        panel.close()
    return state


@pytest.mark.parametrize("font", FONTS)
@pytest.mark.parametrize("profile", ["4xA100-80GB", "1xA100-80GB(3g.40gb,4g.40gb)+1xA100-80GB"])
def test_nothing_overflows_at_any_width(chromium: Browser, profile: str, font: str) -> None:
    page = chromium.new_page(viewport={"width": 1400, "height": 900})
    page.set_content(f"<style>body {{ font-family: {font} }} {joined('panel.css')}</style>")
    page.evaluate(SHOW, [Panel._esm, state_of(profile)])
    wrong = {width: found for width in range(320, 1241, 20) if (found := page.evaluate(WRONG, width))}
    page.close()
    assert wrong == {}
