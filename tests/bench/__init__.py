"""Measurements, each against its alternative in the same run. Only ratios and differences mean something."""
