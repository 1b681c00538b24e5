"""Fitting of a device file: assumed settings that explain measured cycles of layers."""
