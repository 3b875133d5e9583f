"""The command ``otel-toolcalls``."""
