"""labtool: real, highly available Kubernetes labs on your own machine."""

__version__ = "0.1.0"
