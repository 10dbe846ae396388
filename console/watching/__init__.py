"""History, alerts and notices: what the console samples from Penstock, what it concludes, and whom it tells."""
