"""Cases that measure a broker group with replicas: `python -m bench.replicas`."""
