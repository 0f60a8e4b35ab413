"""`%gpu_cluster`: one engine per GPU, for interactive work on several GPUs."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from IPython.display import display

import gpu_magic
from gpu_magic.cluster.cluster import current_cluster, running_cluster
from gpu_magic.errors import ClusterError
from gpu_magic.gpus.choice import gpu_notes
from gpu_magic.launch.devices import NoGpusError
from gpu_magic.process.environment import variables_now
from gpu_magic.process.show import show
from gpu_magic.shell.arguments import WORDS, read, read_count, refusal
from gpu_magic.text import counted, listed

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import SimpleNamespace

    from IPython.core.interactiveshell import InteractiveShell


__all__ = ["GpuClusterMagic"]

_WORDS = WORDS["%gpu_cluster"]


class GpuClusterMagic:
    """The magic that starts, shows, restarts and ends engines."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def gpu_cluster(self, line: str) -> None:
        """Start one engine per GPU: an interpreter that sees only that GPU, as `cuda:0`.

            %gpu_cluster             start an engine for each GPU of this kernel, or show the running engines
            %gpu_cluster 2,0         start engines on these GPUs, typed as after %gpus; also auto:4 or 1:0,1:1
            %gpu_cluster -n 2        start engines on the kernel's first two GPUs; also --count 2
            %gpu_cluster restart 2   restart engine 2; without a number, engines that have ended
            %gpu_cluster stop        end all engines

        {options}

        ipyparallel's `%%px` runs a cell in each engine. `%autopx` runs all cells there.
        `gpu_magic.map(function, items)` calls a function in free engines. Each engine is a rank for
        `torch.distributed`, `jax.distributed` and TensorFlow, and keeps its variables. With a profile, the
        engines of a host divide its GPUs. Engines also work after CUDA has started, and end with this
        kernel. `gpu_magic.cluster(client)` uses engines that another program has started.
        """
        options = read("%gpu_cluster", line)
        word, _, rest = options.request.partition(" ")
        if word in _WORDS:
            if options.count or options.force or options.profile:
                raise ClusterError(f"%gpu_cluster {word} takes no options.")
            getattr(self, f"_{word}")(rest.strip())
        elif near := difflib.get_close_matches(word, _WORDS):
            runs = running_cluster() is not None
            meant = f"Did you mean %gpu_cluster {' '.join(filter(None, [near[0], rest]))}?"
            way = meant if runs else "To start engines: %gpu_cluster"
            raise refusal(f"There is no %gpu_cluster {word}. {way}")
        elif options.request or options.profile or (running := running_cluster()) is None:
            self._start(options)
        else:
            display(running.status())

    def _start(self, options: SimpleNamespace) -> None:
        count, asked = read_count(options.count), {"force": options.force, "profile": options.profile}
        try:
            cluster = gpu_magic.cluster(options.request or None, count=count, **asked)
        except NoGpusError as error:
            raise NoGpusError(error.what, error.gpus, "%gpu_cluster") from None
        notes: Iterable[str] = ()
        if not options.profile:
            devices = [device for engine in cluster.engines.values() for device in engine.devices]
            instead = "To choose GPUs: %gpu_cluster stop, then %gpu_cluster"
            is_chosen = bool(options.request) or count is not None or variables_now().name_gpus
            notes = gpu_notes(devices, instead, is_chosen=is_chosen)
        show(cluster, *notes)

    def _restart(self, numbers: str) -> None:
        words = [word for word in re.split(r"[\s,]+", numbers) if word]
        cluster = current_cluster()
        if not all(re.fullmatch(r"[0-9]{1,9}", word) for word in words):
            there = ",".join(map(str, cluster.engines))
            raise ClusterError(f"{numbers} is not an engine's number. Try %gpu_cluster restart {there}")
        restarted = cluster.restart(map(int, words) if words else None)
        show(f"Restarted: {listed(map(str, restarted))}." if restarted else "All engines run.")

    def _stop(self, rest: str) -> None:
        if rest:
            raise ClusterError(
                f"%gpu_cluster stop ends all engines. To restart some: %gpu_cluster restart {rest}"
            )
        cluster = current_cluster()
        cluster.stop()
        became = "ended" if cluster.owns_engines else "released. The program that started them can end them"
        show(f"{counted(len(cluster.engines), 'engine')} {became}.")
