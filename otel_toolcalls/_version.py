"""The package's version, read by the build and sent as the version of tracer, meter and logger."""

__version__ = "0.1.0"
