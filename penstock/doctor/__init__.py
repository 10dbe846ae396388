"""`penstock doctor`: checks of this machine. One file per subject; each check returns findings."""
