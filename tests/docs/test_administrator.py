"""The administrator's page does what it says: one file loads the extension, whatever users set themselves."""

from __future__ import annotations

import site
import sys
import venv
from typing import TYPE_CHECKING

import pytest
from jupyter_client.manager import KernelManager

from docs.blocks import blocks_of
from tests.conftest import LIMIT, ROOT
from tests.machine import clean_environment

if TYPE_CHECKING:
    from pathlib import Path

PAGE = ROOT / "docs" / "how-to" / "administrator.md"


@pytest.mark.parametrize(
    "users", ["", "c = get_config()\nc.InteractiveShellApp.extensions = ['autoreload']\n"]
)
def test_one_file_loads_it_for_all_users_of_an_environment(tmp_path: Path, users: str) -> None:
    prefix = tmp_path / "environment"
    venv.create(prefix, with_pip=False)
    library = prefix / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    (library / "all.pth").write_text("\n".join([str(ROOT), *site.getsitepackages()]))
    settings = next(block.code for block in blocks_of(PAGE) if "extra_extensions" in block.code)
    (prefix / "etc" / "ipython").mkdir(parents=True)
    (prefix / "etc" / "ipython" / "ipython_config.py").write_text(settings)
    profile = tmp_path / "ipython" / "profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_config.py").write_text(users)

    kernel = KernelManager(kernel_name="python3")
    kernel.kernel_spec.argv[0] = str(prefix / "bin" / "python")
    kernel.start_kernel(env=clean_environment() | {"IPYTHONDIR": str(tmp_path / "ipython")})
    client = kernel.client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=LIMIT)
        loaded = "sorted(get_ipython().extension_manager.loaded)"
        reply = client.execute("", user_expressions={"loaded": loaded}, reply=True, timeout=LIMIT)
        text = reply["content"]["user_expressions"]["loaded"]["data"]["text/plain"]
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
    assert "'gpu_magic'" in text
    assert ("autoreload" in text) == bool(users)
