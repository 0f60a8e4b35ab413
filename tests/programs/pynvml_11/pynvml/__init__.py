"""Stands in for the package pynvml 11.4.1 on PyPI: nvidia-ml-py, without what that package lacks."""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

_elsewhere = [place for place in sys.path if Path(place).resolve() != Path(__file__).parents[1].resolve()]
_spec = PathFinder.find_spec("pynvml", _elsewhere)
_real = module_from_spec(_spec)
_spec.loader.exec_module(_real)
_LACKS = ("nvmlMemory_v2", "c_nvmlMemory_v2_t", "c_nvmlProcessInfo_v3_t")
globals().update(
    {name: value for name, value in vars(_real).items() if name[:2] != "__" and name not in _LACKS}
)
