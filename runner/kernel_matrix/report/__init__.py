"""What people look at: one HTML page that opens from disk, Markdown for a pull request, text for a terminal, JUnit.

Reading order: :mod:`~kernel_matrix.report.contents` collects what every format shows into one
:class:`~kernel_matrix.report.contents.ReportContents`; :mod:`~kernel_matrix.report.formats` names the formats;
:mod:`~kernel_matrix.report.page`
makes the HTML of it and :mod:`~kernel_matrix.report.summary` Markdown and text. Everything that comes from records is
hostile: it reaches the page as escaped text or as data that a script writes with ``textContent``, never as markup.
"""
