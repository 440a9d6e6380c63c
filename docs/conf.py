"""How Sphinx builds the site: `make docs`. Nothing is fetched; pictures are drawn by the library."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

import lunette

project = "Lunette"
author = "the Lunette developers"
copyright = "the Lunette developers, MIT licence"
version = release = lunette.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "drawing",
]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
exclude_patterns = ["_build", "_extensions", "_static"]
suppress_warnings = [
    "myst.header",  # findings are grouped by library, whatever the depth
    "misc.highlighting_failure",  # excerpts with ellipses
]
html_theme = "furo"
html_title = "Lunette"
html_static_path = ["_static"]
html_extra_path = ["explorer.html"]
html_css_files = ["lunette.css"]
html_theme_options = {
    "source_repository": "https://github.com/lunette-ops/lunette",
    "source_branch": "main",
    "source_directory": "docs/",
}

autodoc_typehints = "none"  # the docstrings say the types, with their meaning
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
