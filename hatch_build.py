"""Adds the extension of JupyterLab and Notebook 7 to the wheel, also to that of an editable install.

Jupyter servers let browsers keep an extension's files for a year, whatever their names are. So the files are
placed below a hash of their content. package.json, which browsers don't read, names the hash and the version.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class LabExtensionHook(BuildHookInterface):
    """Places the extension's files for the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Add the files to what the wheel installs beside the package."""
        root = Path(self.root, "gpu_magic")
        extension, panel = root / "labextension", root / "panel"
        files = [*(extension / "static").iterdir(), panel / "connection.js", panel / "panel.css"]
        digest = hashlib.sha256()
        for file in sorted(files, key=lambda file: file.name):
            content = file.read_bytes()
            digest.update(f"{file.name} {len(content)} ".encode() + content)
        static = f"static/{digest.hexdigest()[:20]}"

        package = json.loads((extension / "package.json").read_text())
        package["version"] = self.metadata.version
        package["jupyterlab"]["_build"]["load"] = f"{static}/remoteEntry.js"
        self._made = TemporaryDirectory()
        made = Path(self._made.name, "package.json")
        made.write_text(json.dumps(package, indent=2))

        target = "share/jupyter/labextensions/gpu-magic"
        placed = {made: "package.json", extension / "install.json": "install.json"}
        placed |= {file: f"{static}/{file.name}" for file in files}
        build_data["shared_data"] |= {str(source): f"{target}/{place}" for source, place in placed.items()}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove what was only made for the wheel."""
        self._made.cleanup()
