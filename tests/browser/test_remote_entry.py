"""What the prebuilt extension takes from the application that loads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.conftest import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

ORIGIN = "http://extension.test/"
# An application whose last module also exports names that belong to other modules.
OWNERS = {"@lumino/widgets": "Widget", "@jupyterlab/statusbar": "IStatusBar"}
LOAD = """async owners => {
    const scope = {};
    const add = (name, module) => { scope[name] = {'1.0.0': {get: async () => () => module}}; };
    for (const [name, exported] of Object.entries(owners)) add(name, {[exported]: class { static from = name; }});
    const other = Object.values(owners).map(exported => [exported, class { static from = 'another module'; }]);
    add('@jupyterlab/ui-components', Object.fromEntries(other));
    const container = window._JUPYTERLAB['gpu-magic'];
    container.init(scope);
    const plugin = (await container.get('./extension'))().default;
    return plugin.optional.map(token => token.from);
}"""


def test_each_name_comes_from_the_module_that_owns_it(chromium: Browser) -> None:
    page = chromium.new_page()

    def serve(route: Route) -> None:
        name = route.request.url.rpartition("/")[2]
        if name:
            route.fulfill(path=ROOT / "gpu_magic" / "labextension" / "page" / name)
        else:
            route.fulfill(body="<!doctype html>", content_type="text/html")

    page.route(f"{ORIGIN}**", serve)
    page.goto(ORIGIN)
    page.add_script_tag(url=f"{ORIGIN}remoteEntry.js")
    assert page.evaluate(LOAD, OWNERS) == ["@jupyterlab/statusbar"]
    page.close()
