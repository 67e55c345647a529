"""Modules of formats under the names that they had before they moved into packages.

`workloads.formats` has this folder on its path, so that ``workloads.formats.ios`` is `ios.py` here.
"""
