"""Pages are doctested; what builds them needs Sphinx, and is tested by ``tests/docs`` and by the build."""

collect_ignore_glob = ["conf.py", "_ext/*"]
