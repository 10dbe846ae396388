"""The link server: what proxies and operators ask of the engine, over TCP. `NATIVE` says which form is active."""
