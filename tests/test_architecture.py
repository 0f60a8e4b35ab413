"""The order of the rooms: which part of the package may import which. It is written down here and nowhere else.

Imports inside functions and for type checkers count, and so do module names in strings (`import_module(...)`,
`sys.modules[...]`).
"""

from __future__ import annotations

import ast
import re
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from tests.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

PACKAGE = ROOT / "gpu_magic"

# A module imports from its own room and from rooms above it in this list.
ROOMS = [
    *("text", "errors", "finders", "interrupts", "public", "option_table"),
    "devices",  # facts
    *("claims", "frameworks", "process"),  # this process
    # what users do: each of these has its own function, texts and magic, and comes in place of rooms here
    *(
        "processes",
        "objects",
        "move",
        "on_gpu",
        "measure",
        "fit",
        "restart",
        "gpus",
        "park",
        "launch",
        "cluster",
    ),
    *("panel", "doctor"),
    "api",  # what is called from Python: the package itself
    # what is typed: reading a line, the blocks of a cell; then each folder's magic, and the table of them
    *("shell", "magics", "kernelspec", "server", "command_line", "__main__", "testing"),
]

# Who may import a library that is slow to load, or that only some people have. Nobody imports a framework, but
# for modules that are loaded only where PyTorch is there already.
LIBRARIES = {
    "pynvml": ["devices"],
    "amdsmi": ["devices.amd"],
    "anywidget": ["panel"],
    "IPython": ["magics", "shell", "panel", "cluster.map", "cluster.px", "cluster.start"],
    "ipyparallel": ["cluster"],
    "jupyter_server": ["server"],
    "tornado": ["server"],
    "torch": ["fit.torch_step", "frameworks.torch_modes"],
    **{name: [] for name in ("tensorflow", "jax", "keras", "cupy", "numpy")},
}


def module_of(path: Path) -> str:
    """Return a file's module, without the package's name: `devices.nvml`; empty for the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {module_of(path): path for path in PACKAGE.rglob("*.py")}


def imports_of(source: str, module: str = "", *, is_folder: bool = False) -> Iterator[tuple[int, str]]:
    """Return the line and the full name of everything that a module imports, or names as a module."""
    tree = ast.parse(source)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    loggers = [call.args[0] for call in calls if ast.unparse(call.func) == "logging.getLogger"]
    for node in ast.walk(tree):
        if node in loggers:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:  # `from . import x` in devices.nvml is `from gpu_magic.devices import x`
                here = ["gpu_magic", *filter(None, module.split("."))]
                up = node.level - is_folder
                base = ".".join([*here[: len(here) - up], *filter(None, [base])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Constant) and re.fullmatch(r"gpu_magic(\.\w+)+", str(node.value)):
            yield node.lineno, str(node.value)


# What goes against the order, and why.
EXCEPTIONS = [
    ("gpus.choose", "gpu_magic.panel.widget"),  # a restart is asked for on the kernel's pages
    ("devices.processes", "gpu_magic.kernelspec"),  # the name of a program: nothing is imported
]


def room_of_module(module: str) -> str:
    """Return the room of a module of ours: a folder's magic is one of the magics, and the extension has them."""
    room, _, rest = module.partition(".")
    return "magics" if rest == "magic" or module == "shell.extension" else room


def room_of(name: str) -> str:
    """Return the room of a module of ours, as imported; the package itself is its API. Empty for others'."""
    package, _, rest = name.partition(".")
    if package != "gpu_magic":
        return ""
    room = room_of_module(".".join(rest.split(".")[:2]))
    return room if room in ROOMS else "api"


def violations(source: str, module: str, *, is_folder: bool = False) -> list[str]:
    """Return the imports of a module that go against the order."""
    here = room_of_module(module)
    found = []
    for line, name in imports_of(source, module, is_folder=is_folder):
        room = room_of(name)
        is_allowed = any(
            module == ours and f"{name}.".startswith(f"{theirs}.") for ours, theirs in EXCEPTIONS
        )
        if room and room != here and ROOMS.index(room) >= ROOMS.index(here) and not is_allowed:
            found.append(f"gpu_magic.{module}, line {line}: {here} comes before {room} ({name})")
        homes = LIBRARIES.get(name.partition(".")[0])
        if homes is not None and not any(
            f"{place}.".startswith(f"{home}.") for place in (module, here) for home in homes
        ):
            found.append(f"gpu_magic.{module}, line {line}: imports {name}")
    return found


def test_every_module_is_in_a_room() -> None:
    assert {module.partition(".")[0] for module in MODULES} - {""} <= set(ROOMS)


def test_imports_go_one_way() -> None:
    for module, path in MODULES.items():
        assert not module or not violations(path.read_text(), module, is_folder=path.name == "__init__.py")


def test_no_module_leads_back_to_itself() -> None:
    """`TYPE_CHECKING` imports count, too: a circle of types is a circle of ideas."""
    graph = {}
    for module, path in MODULES.items():
        if not module:
            continue  # the door: it names all of them
        names = [
            name for _, name in imports_of(path.read_text(), module, is_folder=path.name == "__init__.py")
        ]
        ours = (name.removeprefix("gpu_magic.") for name in names if name.startswith("gpu_magic."))
        # `from gpu_magic.devices.nvml import Nvml` is the module, and `from gpu_magic.devices import nvml`, too.
        found = {name if name in MODULES else name.rpartition(".")[0] for name in ours}
        graph[module] = (found & MODULES.keys()) - {module}
    order = list(TopologicalSorter(graph).static_order())  # CycleError names the circle
    assert set(order) == graph.keys()


AGAINST = [
    ("devices.model", "from gpu_magic.process.mask import read"),
    ("devices.model", "def late():\n    from gpu_magic.gpus.table import as_text"),
    ("devices.model", "if TYPE_CHECKING:\n    from gpu_magic.process.view import Snapshot"),
    ("devices.model", "from ..cluster import cluster"),
    ("devices.model", "import gpu_magic"),
    ("devices.nvml", "import gpu_magic.session, gpu_magic.gpus"),
    ("frameworks.jax", "import_module('gpu_magic.process.session')"),
    ("gpus.table", "from gpu_magic import choose"),
    ("frameworks.pytorch", "def late():\n    import torch.nn"),
    ("process.view", "import pynvml"),
    ("on_gpu.scope", "from IPython.display import display"),
    ("doctor.checks", "from gpu_magic.doctor.magic import GpuDoctorMagic"),
    ("doctor.checks", "from gpu_magic.shell.arguments import read"),
]
WITH = [
    ("devices.nvml", "import pynvml"),
    ("devices.nvml", "from . import model"),
    ("gpus.table", "from gpu_magic.process.view import Snapshot"),
    ("doctor.magic", "from gpu_magic.shell.arguments import read"),
    ("doctor.magic", "from IPython.display import display"),
]


def test_an_import_against_the_order_is_found_and_no_other() -> None:
    for module, planted in AGAINST:
        assert violations(planted, module), planted
    for module, allowed in WITH:
        assert not violations(allowed, module), allowed


# Texts for people are made at the edge, and no code asks what one of them contains.

# What texts for people are called, as variables, attributes and functions.
TEXTS = re.compile(
    r"(problem|limitation|why|what|note|sentence|label|message|reason|refusal|since|cause|visible_as|program|holders"
    r"|result|said|meaning|(?<![a-z])fix|total_text|used_text|started|line)$"
)
QUESTIONS = {
    "partition",
    "rpartition",
    "removeprefix",
    "removesuffix",
    "startswith",
    "endswith",
    "replace",
    "find",
}
# Texts of other people that have such a name, words that are typed, and words that are codes.
FOREIGN = [
    ("command_line", "what"),  # a percent sign is doubled for argparse
    ("devices.binding", "line"),  # of a file of the driver
    ("devices.processes", "program"),
    ("cluster.launchers", "line"),  # of a log
    ("doctor.diagnosis", "'device files'"),  # the name of a row
    ("launch.launchers", "program"),
    ("launch.output", "line"),  # of a rank
    ("launch.process", "console"),  # what a launcher printed
    ("objects.memory", "TRACEBACK"),  # the key of an output
    ("on_gpu.background", "str(error)"),  # of a cell
    ("objects.namespace", "why"),  # Python's own error
    ("objects.namespace", "why.removesuffix('.')"),
    ("objects.host", "line"),  # of /proc/self/cgroup
    ("process.watch", "name"),  # of a module of Python
    ("processes.magic", "options.request"),
    ("restart.saved", "'unattended kernel'"),  # the kind of a process
    ("shell.no_effect", "line"),  # of a cell
    ("shell.values", "line"),
    ("launch.magic", "line"),  # of a cell
    ("measure.magic", "line"),
    ("move.plan", "reason"),  # of other people's errors
]


def last_name(node: ast.expr) -> str:
    """Return what an expression is called: the last name in it."""
    if isinstance(node, ast.Call):
        is_text = isinstance(node.func, ast.Name) and node.func.id == "str" and node.args
        return last_name(node.args[0] if is_text else node.func)
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_sentence(node: ast.expr, constants: frozenset[str] = frozenset()) -> bool:
    """Return whether an expression is a text of words, or a constant that is one."""
    if isinstance(node, ast.JoinedStr):
        return any(is_sentence(part) for part in node.values)
    if isinstance(node, ast.Name):
        return node.id in constants
    words = str(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return bool(re.search(r"[a-z]{2}[a-z.:]* [a-z]|^[a-z]+ $|^\. $", words))


def sentences(sources: Iterable[str]) -> frozenset[str]:
    """Return the names of the constants of these modules that are sentences."""
    bodies = (node for source in sources for node in ast.parse(source).body)
    assigned = (node for node in bodies if isinstance(node, ast.Assign) and is_sentence(node.value))
    return frozenset(
        target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)
    )


def asked_of_texts(source: str, module: str, constants: frozenset[str]) -> list[str]:
    """Return the places where a module asks what a text for people contains."""
    found: list[tuple[int, ast.expr]] = []
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in QUESTIONS
        ):
            text = node.func.value
            is_of_error = isinstance(text, ast.Call) and last_name(text) == "error"
            if is_of_error or TEXTS.search(last_name(text)) or any(map(is_sentence, node.args)):
                found.append((node.lineno, text))
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            is_within = isinstance(node.ops[0], ast.In | ast.NotIn)
            is_text = is_within and is_word(node.left, constants) and TEXTS.search(last_name(sides[1]))
            if is_text or any(is_sentence(side, constants) for side in sides):
                found.append((node.lineno, sides[1]))
        elif (
            isinstance(node, ast.Subscript)
            and isinstance(node.slice, ast.Slice)
            and last_name(node) == "since"
        ):
            found.append((node.lineno, node))
    return [
        f"gpu_magic.{module}, line {line}: {ast.unparse(text)}"
        for line, text in found
        if (module, ast.unparse(text)) not in FOREIGN
    ]


def is_word(node: ast.expr, constants: frozenset[str]) -> bool:
    return isinstance(node, ast.Constant | ast.JoinedStr) or is_sentence(node, constants)


def test_no_code_asks_what_a_text_for_people_contains() -> None:
    sources = {module: path.read_text() for module, path in MODULES.items()}
    constants = sentences(sources.values())
    assert not [place for one, source in sources.items() for place in asked_of_texts(source, one, constants)]


HUNG = "HUNG = 'not answering: a call to the driver timed out'"
ASKED = [
    "return [key] if before is None and machine.problem is HUNG else []",
    "if machine.problem != HUNG: return",
    "if HUNG not in snapshot.problem: return",
    "if why == HUNG: return",
    "raise ChoiceError(f'{why}{mode if \"Prohibited\" in why else str()}')",
    "return why.removeprefix('it is ').partition(':')[0]",
    "is_try = str(error).rpartition('. ')[2].startswith('Try ')",
    "return problem and problem.partition('. ')[0]",
    "lines = self.problem.partition('. ')[0].removesuffix('.')",
    "if not self.since.startswith('in '): return",
    "return f'{self.since[3:]} started'",
    "here = 'kernel' if 'kernel' in program() else 'process'",
    "who = snapshot.kernel.program.endswith('kernel')",
    "is_named = result.startswith(framework.name)",
    "return str(error).replace('%gpus shows', 'gpu-magic shows')",
    "return self.visible_as.startswith('cuda:')",
    "what = note.partition(' %env takes no quotes')[0]",
    "is_lost = 'not answer' in note",
]
NOT_ASKED = [
    "first = mask.startswith('GPU-')",
    "name, _, value = typed.partition('=')",
    "is_late = guard.state is State.FROZEN",
    "if problem.cause is Cause.HUNG: return",
    "if program() in KERNELS: return",
]


def test_a_text_that_is_taken_apart_is_found_and_nothing_else() -> None:
    constants = sentences([HUNG])
    for planted in ASKED:
        assert asked_of_texts(f"def f():\n    {planted}", "gpus.table", constants), planted
    for allowed in NOT_ASKED:
        assert not asked_of_texts(f"def f():\n    {allowed}", "gpus.table", constants), allowed
