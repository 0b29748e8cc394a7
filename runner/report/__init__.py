"""What people look at: one HTML page that opens from disk, Markdown for a pull request, text for a terminal, JUnit.

Reading order: :mod:`~runner.report.gathering` collects what every format shows into one
:class:`~runner.report.gathering.Contents`; :mod:`~runner.report.formats` names the formats; :mod:`~runner.report.page`
makes the HTML of it and :mod:`~runner.report.summary` Markdown and text. Everything that comes from records is hostile:
it reaches the page as escaped text or as data that a script writes with ``textContent``, never as markup.
"""
