"""`%gpus`: show the GPUs, choose them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import display
from IPython.utils.process import arg_split
from traitlets import Enum

from gpu_magic import session
from gpu_magic.errors import CudaInitializedError, GpuMagicError
from gpu_magic.magics.show import show_refusal

if TYPE_CHECKING:
    from argparse import Namespace

__all__ = ["GpuMagics"]

_OPTIONS = "--by index|uuid, --order pci|fastest, --dry-run, --force, --strict"


@magics_class
class GpuMagics(Magics):
    """The magics of gpu_magic; `%config GpuMagics` shows what can be set."""

    on_frozen = Enum(
        ["warn", "error"],
        default_value="warn",
        help='What a different choice does once CUDA has started: "warn", or "error", which stops Run All.',
    ).tag(config=True)

    @magic_arguments()
    @argument(
        "wanted",
        nargs="*",
        help="1,3 | 2,0 (the order is kept: the first is cuda:0) | 0-2,5 | GPU-8f3a (the beginning of a UUID) "
        "| MIG-… (one instance) | all (that this kernel may use) | none (hide every GPU) | auto | auto:2 (the "
        "least busy: least memory in use, then least utilisation) | reset (as the kernel was started)",
    )
    @argument("--by", choices=["index", "uuid"], help="Write CUDA_VISIBLE_DEVICES as numbers or as UUIDs.")
    @argument(
        "--order",
        choices=["pci", "fastest"],
        default="pci",
        help="Set CUDA_DEVICE_ORDER to PCI_BUS_ID (nvidia-smi's numbers; the default) or to FASTEST_FIRST.",
    )
    @argument("--dry-run", action="store_true", help="Say what would be set, and change nothing.")
    @argument(
        "--force", action="store_true", help="Allow GPUs outside the mask that the kernel was started with."
    )
    @argument("--strict", action="store_true", help="Where it is too late: an error, which stops Run All.")
    @line_magic
    def gpus(self, line: str) -> None:
        """Show the GPUs of this machine, or choose those that CUDA will see in this kernel.

        `%gpus` alone shows them: memory, utilisation, temperature, power, who uses them, and what this
        kernel calls them. With an argument it chooses, by nvidia-smi's numbers, before a framework starts
        CUDA: `%gpus 1,3` makes GPU 1 `cuda:0` and GPU 3 `cuda:1`. `%gpus {n}` takes a variable.

        Once CUDA has been initialised a different choice changes nothing, and says what works instead.
        """
        try:
            options = _read(self.gpus, line)
            if not options.wanted:
                display(session.gpus())
                return
            choice = session.current().choose(
                options.wanted,
                by=options.by,
                order=options.order,
                dry_run=options.dry_run,
                force=options.force,
            )
            if choice.refusal and (options.strict or self.on_frozen == "error"):
                raise CudaInitializedError(choice.refusal)
        except GpuMagicError as error:
            raise UsageError(str(error)) from None
        if choice.refusal:
            show_refusal(choice.refusal)
        else:
            print(choice)


def _read(magic: Any, line: str) -> Namespace:
    """Read a line's options, and what is wanted as one text.

    Raises
    ------
    UsageError
        One line that names the options there are.

    """
    typed = re.sub(r"(^|\s)#.*", "", line)  # a comment behind a magic is part of its line, to IPython
    words = [word.strip("'\"") for word in arg_split(typed)]
    # argparse takes -1 for an option; the request's own reader has a better answer to it.
    numbers = [word for word in words if re.match(r"-\d", word)]
    try:
        options: Namespace = magic.parser.parse_args([word for word in words if word not in numbers])
    except UsageError as error:
        raise UsageError(f"{error}; the options are {_OPTIONS}. %gpus? explains them.") from None
    wanted = [*options.wanted, *numbers]
    chosen_by_option = (
        options.by or options.dry_run or options.force or options.strict or options.order != "pci"
    )
    if chosen_by_option and not wanted:
        raise UsageError(f"{typed.strip()} goes with GPUs; try %gpus 1,3 {typed.strip()}")
    options.wanted = " ".join(wanted)
    return options
