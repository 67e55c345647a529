"""How the site is built: ``sphinx-build -W -q -b html docs OUT``; nothing is fetched, nothing written elsewhere."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent / "_ext")]

import simsched  # noqa: E402

project = "simsched"
author = "The simsched developers"
copyright = author
version = release = simsched.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "mathml",
    "pages",
    "references",
]
exclude_patterns = ["_ext", "_static", "Thumbs.db", ".DS_Store"]
nitpicky = True  # of names in docstrings, those of ours that are written in full (references.py)

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

autodoc_docstring_signature = False  # what is inherited from collections.abc begins with no signature of Python
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
add_module_names = False
toc_object_entries_show_parents = "hide"
napoleon_google_docstring = False
napoleon_use_param = False  # numpydoc lets several parameters share a description
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_attr_annotations = False  # the signature has them

# single backticks of docstrings: a link where the name is public, code otherwise
default_role = "py:obj"

html_theme = "furo"
html_title = f"simsched {version}"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "tango"
pygments_dark_style = "monokai"
