"""`GET /gpu_magic/gpus`: the table of `%gpus`, with the kernels of this Jupyter server.

The extension reads the machine when a page asks, at most once a second, on a thread, so that a hung driver
does not block the server. A call to the driver times out after two seconds (`devices.call_timeout`). It
changes nothing, unless `c.GpuMagic.cull_idle_gpu` tells it to (culler.py).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

from gpu_magic.devices.idle import seconds_now
from gpu_magic.errors import ChoiceError
from gpu_magic.server.idle_kernels import GpuMagic
from gpu_magic.server.reading import Reading, kernels_of

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["GpusHandler"]


def _load_jupyter_server_extension(server: Any, now: Callable[[], float] = seconds_now) -> None:
    app = server.web_app
    reading = Reading()

    def url(name: str) -> str:
        return url_path_join(app.settings["base_url"], "gpu_magic", name)

    app.add_handlers(".*$", [(url("gpus"), GpusHandler, {"reading": reading})])
    try:
        rule = GpuMagic(parent=server).rule()
    except ChoiceError as error:
        server.log.error("gpu_magic: %s", error)  # noqa: TRY400 - the line says it all
        return
    if rule is None:
        return
    from gpu_magic.server.culler import Culler, CullingHandler  # which few servers need

    culler = Culler(server, reading, rule, now)
    app.add_handlers(".*$", [(url("culling"), CullingHandler, {"culler": culler})])
    # Pages ask only if they find this in their configuration.
    app.settings.setdefault("page_config_data", {})["gpuMagicCulling"] = str(culler.between_questions)
    culler.start()


class GpusHandler(APIHandler):
    """Returns the GPUs to users who are logged in and may see this server's kernels."""

    auth_resource = "kernels"

    def initialize(self, reading: Reading) -> None:
        self._reading = reading

    @web.authenticated
    @authorized  # type: ignore[untyped-decorator, unused-ignore]
    async def get(self) -> None:
        """Answer with JSON: see `Reading.read`."""
        kernels = await kernels_of(self.kernel_manager, self.session_manager)
        self.finish(json.dumps(await self._reading.of(kernels)))
