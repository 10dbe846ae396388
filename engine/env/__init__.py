"""The operating system as the engine sees it: the real machine, a simulated one, and the sorted store.

Import the submodules.
"""
