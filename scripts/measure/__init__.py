"""Measurements for single claims of the documents."""
