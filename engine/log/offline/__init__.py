"""What `penstock log` does with a data directory whose engine is stopped. See README.md in the folder above."""
