"""tpuctl: a cluster manager for spot TPU slices on Google Cloud. Importing it opens and reads nothing."""

__version__ = "0.1.0"
