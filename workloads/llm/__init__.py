"""Steps of language models: `llm` makes the graph of one step from a ``config.json``, or from a model by name."""

from workloads.llm.language_model import llm
from workloads.llm.published import PUBLISHED

__all__ = ["PUBLISHED", "llm"]
