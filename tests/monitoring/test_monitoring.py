"""The alerts and the dashboard that we ship: about metrics that there are, complete, and with a page for whoever is paged."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import combinations

import pytest
import yaml

from gpuward.controllers.metricnames import OWN_PREFIX, PREFIX
from gpuward.crd import decode
from gpuward.model.reasons import Reason
from gpuward.operands import ClusterFacts, render
from gpuward.report.groups import Group
from gpuward.sandbox.samples import IMAGES, sample_policy
from tests.monitoring.files import FOLDER, NO_PROMETHEUS, ROOT, RULES, UNIT_TESTS, Object, alerts, dashboard, labels_of, queries

FROM_THE_SCRAPE = ("cluster", "namespace", "job")
"""Labels that Prometheus adds."""
EXPRESSIONS = [(alert["alert"], alert["expr"]) for alert in alerts()] + list(queries())


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip(NO_PROMETHEUS)
    return found


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_takes_the_rules(promtool: str) -> None:
    assert f"{len(alerts())} rules found" in run(promtool, "check", "rules", str(RULES))


def test_each_alert_fires_when_it_should_and_only_then(promtool: str) -> None:
    assert "SUCCESS" in run(promtool, "test", "rules", str(UNIT_TESTS))
    cases = [case for test in yaml.safe_load(UNIT_TESTS.read_text(encoding="utf-8"))["tests"] for case in test["alert_rule_test"]]
    names = {alert["alert"] for alert in alerts()}
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == names
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == names


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_each_alert_says_how_bad_it_is_and_leads_to_a_page_that_is_there(alert: Object) -> None:
    assert alert["labels"]["severity"] in ("warning", "critical")
    assert set(alert["annotations"]) == {"summary", "description", "runbook"}
    found = re.fullmatch(r"docs/(.*\.md)(?:#(\w+))?(?:, or: gpuward reasons .*)?", alert["annotations"]["runbook"])
    assert found is not None
    assert is_there(found[1], found[2], alert["expr"])


def is_there(page: str, anchor: str | None, expr: str) -> bool:
    """Tell whether a page of docs/ is there, with its section, for every reason that the alert is about."""
    reasons = [str(reason) for reason in Reason if re.search(rf"\b{reason}\b", expr)]
    pages = [ROOT / "docs" / page.replace("{{ $labels.reason }}", reason) for reason in reasons or [""]]
    if not all(file.exists() for file in pages):
        return False
    headings = re.findall(r"^#+ (\w+)$", pages[0].read_text(encoding="utf-8"), re.MULTILINE)
    return anchor is None or anchor in {heading.lower() for heading in headings}


def test_the_place_of_the_site_is_said_once_and_makes_addresses_of_all_runbooks() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    (place, command), = re.findall(r"^ +SITE=(\S+)\n +(sed .*) > rule\.yaml$", text, re.MULTILINE)
    done = subprocess.run(["bash", "-c", f"SITE={place}; {command}"], cwd=ROOT, capture_output=True, text=True, check=True)
    (group,) = yaml.safe_load(done.stdout)["spec"]["groups"]
    assert [rule["expr"] for rule in group["rules"]] == [alert["expr"] for alert in alerts()], "nothing else changes"
    for rule in group["rules"]:
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
        path, _, anchor = rule["annotations"]["runbook_url"].removeprefix(f"{place}/").partition("#")
        assert is_there(path.removesuffix("html") + "md", anchor or None, rule["expr"])


def test_alerts_are_about_all_reasons_that_stop_a_rollout_or_need_somebody() -> None:
    def listed(name: str) -> set[str]:
        (expr,) = (alert["expr"] for alert in alerts() if alert["alert"] == name)
        return set(re.findall(r'reason=~?"([^"]*)"', expr)[0].split("|"))

    meant = {Reason.PAUSED, Reason.TEMPLATE_SETTLING, Reason.WINDOW_SHUT, Reason.WAVE_SOAKING, Reason.ANALYSIS_RUNNING,
             Reason.APPROVAL_REQUIRED, Reason.ABORTED, Reason.IMAGE_NOT_STAGED}
    stops = {str(reason) for reason in Reason if reason.concerns_fleet and not reason.is_turn and reason not in meant}
    unmade = {Reason.DRIVER_POD_MISSING, Reason.VALIDATOR_MISSING}
    """What mostly takes seconds: after twenty minutes something keeps the pod away, and a node that was done has no deadline."""
    needs = {str(reason) for reason in Reason if reason.needs_person or reason in unmade}
    assert listed("GpuwardRolloutStopped") == stops
    assert listed("GpuwardNodeHeld") | listed("GpuwardNodeFailed") == needs
    (oldest,) = (expr for title, expr in queries() if title == "Oldest wait that needs somebody")
    assert set(re.findall(r'reason=~"([^"]*)"', oldest)[0].split("|")) == needs
    (count,) = (expr for title, expr in queries() if title == "Need somebody")
    assert set(re.findall(r'reason=~"([^"]*)"', count)[0].split("|")) == needs - unmade | stops | {Reason.APPROVAL_REQUIRED}


@pytest.mark.parametrize(("name", "expr"), EXPRESSIONS, ids=[name for name, _ in EXPRESSIONS])
def test_queries_are_about_metrics_that_there_are(name: str, expr: str) -> None:
    series = re.findall(rf"\b((?:{PREFIX}|{OWN_PREFIX})\w+)(?:{{([^}}]*)}})?", expr)
    assert series
    labels = {label for name, _ in series for label in (*labels_of()[name], *FROM_THE_SCRAPE)}
    for metric, selected in series:
        assert set(re.findall(r"(\w+)(?:=|!=|=~|!~)\"", selected)) <= {*labels_of()[metric], *FROM_THE_SCRAPE}, metric
    for grouped in re.findall(r"\bby \(([^)]*)\)", expr):
        assert set(re.findall(r"\w+", grouped)) <= labels


def test_groups_that_the_dashboard_names_are_those_of_the_status() -> None:
    (panel,) = (panel for panel in dashboard()["panels"] if panel["title"] == "Nodes by group")
    assert [override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]] == [str(group) for group in Group]


def test_the_share_that_is_up_to_date_counts_the_nodes_that_the_status_counts() -> None:
    (share,) = (expr for title, expr in queries() if title == "Up to date")
    assert re.findall(r'group=~"([^"]*)"', share) == [f"{Group.UP_TO_DATE}|{Group.UNWELL}"]


def test_the_dashboard_can_be_imported_anywhere() -> None:
    board = dashboard()
    assert board["id"] is None, "Grafana gives it a number"
    assert [one["name"] for one in board["templating"]["list"]] == ["datasource", "cluster", "namespace"]
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["type"] == "row" or (panel["description"] and panel["targets"]), panel["title"]
        sources = [panel.get("datasource"), *(target["datasource"] for target in panel.get("targets", ()))]
        assert all(source["uid"] == "${datasource}" for source in sources if source), panel["title"]
        assert len({target["refId"] for target in panel.get("targets", ())}) == len(panel.get("targets", ()))
    for one, other in combinations((panel["gridPos"] for panel in panels), 2):
        apart = any(a[at] + a[size] <= b[at] for a, b in ((one, other), (other, one)) for at, size in (("x", "w"), ("y", "h")))
        assert apart, (one, other)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


def test_the_service_monitor_is_the_one_that_gpuward_makes() -> None:
    """So that gpuward finds nothing to change, and Prometheus scrapes the operator once."""
    facts = ClusterFacts(namespace="gpu-operator", has_service_monitor_crd=True)
    states = render(decode.cluster_policy(sample_policy()), facts, IMAGES)
    (made,) = (state.objects for state in states if state.name == "state-operator-metrics")
    assert list(yaml.safe_load_all((FOLDER / "servicemonitor.yaml").read_text(encoding="utf-8"))) == list(made)
