"""What the package costs, beside its alternatives: `make bench`. README.md says how it is measured."""
