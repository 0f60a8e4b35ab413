"""Code that is measured in a fresh Jupyter kernel."""

from __future__ import annotations

import subprocess
from ast import literal_eval
from typing import TYPE_CHECKING, Any

from jupyter_client.manager import start_new_kernel

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["answer_of"]


def answer_of(code: str, environment: Mapping[str, str]) -> Any:
    """Run code in a kernel of its own; return what it leaves in the variable `answer`."""
    manager, client = start_new_kernel(
        env=dict(environment), extra_arguments=["--HistoryManager.enabled=False"], stderr=subprocess.DEVNULL
    )
    try:
        reply = client.execute_interactive(
            code, user_expressions={"answer": "answer"}, output_hook=lambda _: None, timeout=60
        )
        answer = reply["content"]["user_expressions"]["answer"]["data"]["text/plain"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return literal_eval(answer)
