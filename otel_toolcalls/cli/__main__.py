"""``python -m otel_toolcalls.cli``: the same as ``otel-toolcalls``."""

from otel_toolcalls.cli import main

main()
