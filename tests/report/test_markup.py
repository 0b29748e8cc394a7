"""Markup that text cannot break out of."""

import pytest

from kernel_matrix.report.markup import element, joined, raw


def test_text_and_attributes_are_escaped_once():
    inner = element("b", "<i>")
    assert element("p", inner, " & ", title='"><script>', class_="x") == (
        '<p title="&quot;&gt;&lt;script&gt;" class="x"><b>&lt;i&gt;</b> &amp; </p>'
    )
    assert joined("<", inner) == "&lt;<b>&lt;i&gt;</b>"


def test_none_attributes_are_left_out_and_empty_elements_open():
    assert element("input", type="text", value=None) == '<input type="text">'
    assert element("a", data_page="x", aria_current=None) == '<a data-page="x"></a>'


@pytest.mark.parametrize("text", ["</script>", "x</SCRIPT >", "<!-- x"])
def test_a_script_cannot_hold_its_own_end(text):
    with pytest.raises(ValueError, match="would end it"):
        raw("script", text)


def test_a_script_is_not_escaped():
    assert raw("script", "a < b && c", id="x") == '<script id="x">a < b && c</script>'
