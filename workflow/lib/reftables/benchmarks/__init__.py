"""Benchmark sources: the files of a benchmark to truth rows and request texts, one module a source."""

SOURCES = ("coco", "grefer", "mdetr", "refer", "refspatial", "surds")
