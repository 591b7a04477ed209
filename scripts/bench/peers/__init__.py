"""The same training step in other libraries, written as well as we know how, to be compared with."""
