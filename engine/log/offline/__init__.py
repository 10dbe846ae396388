"""The actions of `penstock log` on a data directory whose engine is stopped. See README.md in the folder above."""
