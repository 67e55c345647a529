"""The four uses: comparisons, studies, what-if questions."""
