"""The process and the machine: threads, ranks, signals, forks, and the files and settings of a run."""
