"""The drawings of the book."""
