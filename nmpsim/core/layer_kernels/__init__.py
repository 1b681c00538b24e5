"""Layer kernels: layers of a recording that are executed as single kernel calls, proved equal."""
