"""Somebody's own module, which happens to have the name of a framework."""


class Model: ...
