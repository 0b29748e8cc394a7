"""A service of a small matrix: what is sent to it is judged, recorded and answered."""

from __future__ import annotations

import json
import signal
import socket
import time
from dataclasses import replace

import pytest
import requests

from kernel_matrix.api.make_pairs import make_pairs
from kernel_matrix.api.serve import ServiceOptions, serving
from kernel_matrix.errors import UsageError
from kernel_matrix.model.evaluation import source_name

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("forked_roles")]


@pytest.fixture
def options(field):
    return ServiceOptions(matrix=field.root / "matrix.toml", folder=field.results, sandbox="process")


def source(field, name):
    return (field.candidates / f"{name}.py").read_text()


def ended(address, ids):
    """Wait for the ends of evaluations; their answers by id."""
    while True:
        listed = requests.get(f"{address}/evaluations", params={"id": ids}, timeout=30).json()["evaluations"]
        if all(one["state"] == "ended" for one in listed):
            return {one["id"]: one["result"] for one in listed}
        time.sleep(0.1)


def submit(address, *sources, **fields):
    wanted = [{"problem": "tiny", "source": text, **fields} for text in sources]
    answer = requests.post(f"{address}/evaluations/batch", json={"evaluations": wanted}, timeout=30)
    return [one["id"] for one in answer.json()["evaluations"]]


def test_candidates_are_judged_and_recorded(field, options):
    with serving(options, port=0) as address:
        good, bad, odd = submit(address, source(field, "honest"), source(field, "wrong"), "no Python at all")
        answers = ended(address, [good, bad, odd])
        again = submit(address, source(field, "honest"))
        assert ended(address, again) == {again[0]: answers[good]}
        assert requests.get(f"{address}/workers", timeout=30).json()[0]["running"] == 0
    assert [answers[id_]["status"] for id_ in (good, bad, odd)] == ["passed", "incorrect_values", "compile_error"]
    assert [answers[id_]["fault"] for id_ in (good, bad, odd)] == ["none", "candidate", "candidate"]
    assert answers[good]["workloads"]["smoke"]["candidate_median_ns"] > 0
    assert answers[bad]["evidence"]["message"].endswith("elements beyond tolerance")
    assert str(field.root) not in json.dumps(answers)
    records = {record["cell_id"]: record for record in field.records()}
    assert {answers[id_]["record"].partition(".")[0] for id_ in (good, bad, odd)} == set(records)


def test_tier_values_compares_and_times_nothing(field, options):
    with serving(options, port=0) as address:
        sources = source(field, "honest"), source(field, "wrong")
        verified, wrong = submit(address, *sources, tier="values")
        (timed,) = submit(address, source(field, "honest"), tier="quick")
        answers = ended(address, [verified, wrong, timed])
    assert [answers[id_]["status"] for id_ in (verified, wrong, timed)] == ["verified", "incorrect_values", "passed"]
    assert "candidate_median_ns" not in answers[verified]["workloads"]["smoke"]
    assert answers[timed]["workloads"]["smoke"]["candidate_median_ns"] > 0
    assert {record["cell"]["tier"] for record in field.records()} == {"values", "quick"}


def test_reference_takes_the_place_of_a_problem(field, options):
    reference = (field.root / "problems/tiny/reference.py").read_text()
    sent = {"problem": "", "reference": reference, "dtype": "fp32"}
    with serving(replace(options, takes_references=True), port=0) as address:
        good, bad = submit(address, source(field, "honest"), source(field, "wrong"), **sent)
        answers = ended(address, [good, bad])
        refused = requests.post(f"{address}/evaluations", json={"source": "x = 1", "reference": "x"}, timeout=30)
    assert [answers[id_]["status"] for id_ in (good, bad)] == ["passed", "incorrect_values"]
    assert refused.status_code == 422
    with serving(options, port=0) as address:
        wanted = {"source": source(field, "honest"), "reference": reference}
        refused = requests.post(f"{address}/evaluations", json=wanted, timeout=30).json()["error"]
    assert refused["what"] == "this service takes no references"


def test_first_origin_is_recorded_and_changes_no_answer(field, options):
    """A candidate that was sent before, under another origin, is the same work, and pairs find its parent."""
    wrong, honest = source(field, "wrong"), source(field, "honest")
    first = {"method": "refine", "model": 'a \x7f\u2028"quoted" name', "sample": 1, "round": 0, "cost_usd": 1e-07}
    child = {"model": "m", "round": 1, "parent": source_name(wrong, ".py")}
    with serving(options, port=0) as address:
        ids = [
            *submit(address, wrong, origin=first),
            *submit(address, wrong, origin={"model": "later", "round": 7}),
            *submit(address, wrong),
            *submit(address, honest, origin=child),
        ]
        answers = ended(address, ids)
    cells = [answers[id_]["record"].partition(".")[0] for id_ in ids]
    assert len(set(cells)) == 2
    assert {one["cell_id"]: one["cell"]["origin"] for one in field.records()} == {cells[0]: first, cells[3]: child}
    pairs = make_pairs(field.results, field.root / "pairs").table
    assert pairs.select("kind", "relation").rows() == [("error_correction", "parent")]


def test_declared_language_is_judged_by_and_is_other_work(field, options):
    text = source(field, "honest")
    with serving(options, port=0) as address:
        plain, triton = *submit(address, text), *submit(address, text, language="triton")
        answers = ended(address, [plain, triton])
        wanted = {"problem": "tiny", "source": text, "suffix": ".cu", "language": "triton"}
        refused = requests.post(f"{address}/evaluations", json=wanted, timeout=30).json()["error"]
        unknown = requests.post(f"{address}/evaluations", json={**wanted, "language": 'c"'}, timeout=30)
    assert unknown.status_code == 422
    assert source_name("S", ".py", "triton") != source_name("tritonS", ".py")
    assert [answers[id_]["status"] for id_ in (plain, triton)] == ["passed", "no_own_kernel"]
    assert refused["what"].endswith(".cu cannot be triton; allowed: cuda, hip")
    languages = {one["cell"]["candidate"]: one["cell"]["language"] for one in field.records()}
    assert languages == {
        f"tiny/{source_name(text, '.py')}": "torch",
        f"tiny/{source_name(text, '.py', 'triton')}": "triton",
    }


def test_metrics_count_what_has_ended(field, options):
    text_string_to_metric_families = pytest.importorskip("prometheus_client.parser").text_string_to_metric_families
    with serving(options, port=0) as address:
        ended(address, submit(address, source(field, "honest"), "no Python at all"))
        metrics = requests.get(f"{address}/metrics", timeout=30).text
    families = {family.name: family for family in text_string_to_metric_families(metrics)}
    results = {sample.labels["status"]: sample.value for sample in families["kernel_matrix_results"].samples}
    assert results == {"passed": 1, "compile_error": 1}


def test_work_of_a_killed_service_is_done_by_the_next(field, options):
    with field.start("serve", "--sandbox", "process", "--port", "0") as service:
        address = service.stdout.readline().split()[1].rstrip(";")
        ids = submit(address, source(field, "honest"), source(field, "wrong"))
        service.send_signal(signal.SIGKILL)
    with serving(options, port=0) as address:
        assert {answer["status"] for answer in ended(address, ids).values()} == {"passed", "incorrect_values"}


def test_service_ends_by_a_signal_while_it_judges(field):
    with field.start("serve", "--sandbox", "process", "--port", "0") as service:
        address = service.stdout.readline().split()[1].rstrip(";")
        (id_,) = submit(address, source(field, "honest"))
        while requests.get(f"{address}/evaluations/{id_}", timeout=30).json()["state"] == "queued":
            time.sleep(0.05)
        service.send_signal(signal.SIGTERM)
        _, said = service.communicate()
    assert service.returncode == 128 + signal.SIGTERM
    assert said == "stopped by SIGTERM\n"
    assert field.leftovers() == []


def test_what_cannot_be_judged_here_is_refused(field, options):
    with serving(options, port=0) as address:

        def refusal(**changes):
            wanted = {"problem": "tiny", "source": source(field, "honest"), **changes}
            refused = requests.post(f"{address}/evaluations", json=wanted, timeout=30)
            assert refused.status_code == 422
            return refused.json()["error"]["what"]

        assert refusal(problem="tinny") == "there is no problem 'tinny'; did you mean 'tiny'?"
        assert refusal(dtype="bf16") == "there is no dtype 'bf16'"
        assert refusal(gpu="h200") == "there is no gpu 'h200'"
        assert refusal(toolchain="cu130") == "there is no toolchain 'cu130'"
        assert "it cannot run here: " in refusal(suffix=".cu", source="__global__ void kernel() {}")


def test_other_machines_need_tokens(options):
    with pytest.raises(UsageError, match="is reached by other machines, and no client has a token"):
        serving(options, host="0.0.0.0").__enter__()


def test_port_of_somebody_else_is_told(options):
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UsageError, match="Address already in use"):
        serving(options, port=taken.getsockname()[1]).__enter__()
