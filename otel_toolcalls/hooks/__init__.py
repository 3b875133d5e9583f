"""The hooks: one module per SDK family, each a table of targets and what their wrappers observe.

An SDK is never imported here: targets are patched when the app imports them, or at once where it already has.
"""
