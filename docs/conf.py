"""Configuration of the site. `docs/build.py` builds it, once for each language, from docs/en and docs/zh."""

import gc
import importlib.util
import os
import sys
from pathlib import Path

import jieba

import regard

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS / "_extensions"))

gc.set_threshold(50_000, 20, 20)  # the trees of all pages are alive: to look for garbage among them takes long

language = os.environ.get("REGARD_DOCS_LANGUAGE", "en")
is_chinese = language == "zh_CN"

jieba.setLogLevel("WARNING")  # the words of the search in Chinese

project = "regard"
author = "the regard authors"
project_copyright = "the regard authors"
version = release = regard.__version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx_design",
    "sphinx_copybutton",
    "chinese_search",
    "command_line_page",
    "embedded_views",
    "glossary_pages",
    "local_kernels",
    "mechanism_pages",
    "page_notebooks",
    "plain_equations",
    "reference_pages",
    "shared_cells",
    "two_languages",
]
default_role = "py:obj"
add_module_names = False
autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_typehints_description_target = "documented"
autodoc_inherit_docstrings = False
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
python_display_short_literal_types = True
toc_object_entries_show_parents = "hide"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
# The Chinese site refers to pages that exist in English only by the inventory of the English one.
intersphinx_mapping = {"en": ("../en", str(DOCS.parent / "build/site/en/objects.inv"))} if is_chinese else {}

myst_enable_extensions = ["amsmath", "attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_cache_path = str(DOCS.parent / "build/cells")
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_execution_show_tb = True
nb_execution_in_temp = True
nb_merge_streams = True
nb_code_prompt_show = "显示代码" if is_chinese else "Show the code"
nb_code_prompt_hide = "隐藏代码" if is_chinese else "Hide the code"

html_theme = "pydata_sphinx_theme"
html_title = "regard"
# One file without fonts, so that equations need no other host.
mathjax = Path(importlib.util.find_spec("sphinx-mathjax-offline").origin).parent / "static/mathjax/tex-svg.js"
html_static_path = ["_static", str(mathjax)]
mathjax_path = mathjax.name
html_css_files = ["site.css"]
html_search_scorer = str(DOCS / "search_order.js")
html_js_files = [("viewer_themes.js", {"defer": "defer"})]
html_theme_options = {
    "logo": {"text": "regard"},
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "navbar_center": ["navbar-nav", "english_sections"],
    "navbar_end": ["language_switch", "theme-switcher"],
    "navbar_persistent": ["search-button"],
    "search_bar_text": "搜索" if is_chinese else "Search",
    "footer_start": ["copyright"],
    "footer_end": [],
    "primary_sidebar_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "github-dark",
    "secondary_sidebar_items": ["page-toc", "notebook_link"],
}
html_sidebars = {"index": []}
html_copy_source = False
locale_dirs = ["../_locale"]
gettext_auto_build = False
templates_path = ["_templates"]
html_show_sourcelink = False
