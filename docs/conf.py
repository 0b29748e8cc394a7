"""The documentation as a site: ``sphinx-build -W --keep-going docs build/site``."""

from kernel_matrix.version import __version__

project = "kernel-matrix"
author = "The kernel-matrix authors"
release = __version__

extensions = ["myst_parser", "sphinx_copybutton", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "contents"
exclude_patterns = ["examples", "pictures"]

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"

html_theme = "furo"
html_title = f"kernel-matrix {release}"
html_show_sphinx = False

myst_heading_anchors = 4  # links with # are checked
copybutton_exclude = ".linenos, .gp, .go"  # copies commands without prompt and output
highlight_language = "text"
suppress_warnings = ["misc.highlighting_failure"]  # outputs are shortened with …
