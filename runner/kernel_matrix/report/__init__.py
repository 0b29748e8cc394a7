"""Reports: one HTML page that opens from disk, Markdown for a pull request, text for a terminal, JUnit.

Reading order: :mod:`~kernel_matrix.report.contents` collects the content of every format into one
:class:`~kernel_matrix.report.contents.ReportContents`; :mod:`~kernel_matrix.report.formats` lists the formats;
:mod:`~kernel_matrix.report.page` writes HTML and :mod:`~kernel_matrix.report.summary` Markdown and text. Text from
records is hostile: it reaches the page escaped, or as data that a script writes with ``textContent``, never as markup.
"""
