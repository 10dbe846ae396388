"""`penstock up`: everything on one machine.

In order: directory, lock, ports, plan, child, supervisor, files, banner.
"""
