"""`penstock doctor`: what is missing or mis-set on this machine. A file a subject; each check returns findings."""
