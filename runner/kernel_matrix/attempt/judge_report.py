"""Reading the judge's report as untrusted input."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jsonschema_rs

from kernel_matrix.json_schemas import load_schema
from kernel_matrix.model.messages import SessionReport, from_json
from kernel_matrix.sandboxes import ProcessLabels
from kernel_matrix.untrusted_json import UntrustedJsonError, read_object


def read_report(path: Path, labels: ProcessLabels) -> tuple[SessionReport | None, str]:
    """Return the judge's report, or the reason why it cannot be used.

    In a sandbox with little isolation, a candidate may have written it. So no link is followed, no pipe is waited for,
    and only what the schema allows is accepted.
    """
    try:
        document = read_object(path)
        _report_schema().validate(document)
        report = from_json(SessionReport, document)
    except UntrustedJsonError as error:
        return None, f"the judge's report: {error.reason}"
    except (jsonschema_rs.ValidationError, ValueError) as error:
        return None, f"the judge's report is malformed: {str(error).splitlines()[0]}"
    if (report.cell_id, report.session) != (labels.cell_id, labels.session):
        return None, "the judge's report is about another cell"
    return report, ""


@cache
def _report_schema() -> jsonschema_rs.Draft202012Validator:
    definitions = load_schema("record")["$defs"]
    # The mask keeps whole values out of its messages.
    return jsonschema_rs.Draft202012Validator(
        {"$ref": "#/$defs/session_report", "$defs": definitions}, mask="the value"
    )
