"""The plugin contract: decorators, loading, the proxy, client wrapping, ark_sdk names."""
