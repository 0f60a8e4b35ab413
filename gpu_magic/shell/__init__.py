"""The magics in IPython: their table, options, completion and cell bodies."""
