"""Small shared leaves: contract, wire, network, configuration, credentials, operations."""
