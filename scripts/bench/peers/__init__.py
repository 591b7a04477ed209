"""The same training and decoding steps in other libraries, written as well as we can."""
