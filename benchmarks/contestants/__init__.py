"""One module per contestant. Each says what to install (``PACKAGES``) and how its variants are switched on.

``VARIANTS`` maps the name of a variant to the environment variables that it needs; ``instrument(telemetry, variant)``
switches it on, after the SDKs are imported. ``settle()``, where there is one, does what the app does between streams.
"""
