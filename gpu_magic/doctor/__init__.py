"""Finds errors of this process's GPU set-up: reads facts from several sources, and checks them."""
