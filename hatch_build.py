"""Adds the extension of JupyterLab and Notebook 7 to the wheel.

Jupyter servers let browsers keep the files below an extension's `static/` for a year, whatever their names
are. So the page's files are placed there below a hash of their content. package.json, which browsers don't
read, names the hash and the version. An editable install has no copy: `jupyter labextension develop` links
the folder itself, whose files are not below `static/`, so browsers ask for them again.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class LabExtensionHook(BuildHookInterface):
    """Places the extension's files for the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files to what the wheel installs beside the package."""
        if version == "editable":
            return
        extension = Path(self.root, "gpu_magic", "labextension")
        files = {
            file.relative_to(extension).as_posix(): file
            for file in sorted(extension.rglob("*"))
            if file.is_file()
        }
        digest = hashlib.sha256()
        for name, file in files.items():
            if name.startswith("page/"):
                content = file.read_bytes()
                digest.update(f"{file.name} {len(content)} ".encode() + content)
        page = f"static/{digest.hexdigest()[:20]}/"

        package = json.loads(files["package.json"].read_text())
        package["version"] = self.metadata.version
        package["jupyterlab"]["_build"]["load"] = f"{page}remoteEntry.js"
        with NamedTemporaryFile("w", suffix=".json", delete=False) as made:
            json.dump(package, made, indent=2)
        files["package.json"] = self._made = Path(made.name)

        target = "share/jupyter/labextensions/gpu-magic/"
        build_data["shared_data"] |= {
            str(file): target + (page + file.name if name.startswith("page/") else name)
            for name, file in files.items()
        }

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove what was only made for the wheel."""
        if version != "editable":
            self._made.unlink()
