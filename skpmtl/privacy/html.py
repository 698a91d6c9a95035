"""A privacy report as HTML: no script, nothing from elsewhere, readable on light and dark pages."""

from html import escape

# Colours come from the page, so that a dark one is not lit up; only the badge brings its own.
_STYLE = """\
.skpmtl-privacy { max-width: 60em; line-height: 1.4; }
.skpmtl-privacy .badge { display: inline-block; padding: .15em .7em; border-radius: 1em;
  background: #1a6b3c; color: #fff; font-weight: 600; }
.skpmtl-privacy .badge.none { background: #a3261e; }
.skpmtl-privacy dl { display: grid; grid-template-columns: minmax(6em, max-content) 1fr;
  gap: .2em 1em; margin: .6em 0; }
.skpmtl-privacy dt { font-weight: 600; }
.skpmtl-privacy dd { margin: 0; overflow-wrap: anywhere; }
.skpmtl-privacy summary { cursor: pointer; }
.skpmtl-privacy .wide { overflow-x: auto; }
.skpmtl-privacy table { border-collapse: collapse; margin: .5em 0; }
.skpmtl-privacy th, .skpmtl-privacy td { border: 1px solid rgba(128, 128, 128, .5);
  padding: .15em .6em; text-align: left; }
"""
_COLUMNS = ("name", "statistic", "mechanism", "sensitivity", "norm", "noise_std", "mu", "epsilon")
_MOST_RELEASES = 20


def report_html(report, paragraphs):
    """HTML of a report; all text in it is escaped: reports also come from files of others."""
    facts = {"Guarantee": report.guarantee}
    if report.guarantee == "none":
        badge, kind = "no privacy guarantee", "badge none"
        facts["Reason"] = report.notes.get("reason", "no noise was added")
    else:
        badge, kind = f"\u03b5 = {report.epsilon:.6g}, \u03b4 = {report.delta:.6g}", "badge"
        facts["Protects"] = f"every {report.unit}; neighbours: {report.adjacency}"
    facts["Mechanism"], facts["Accounting"] = report.mechanism, report.accountant
    facts["Randomness"] = report.rng
    meaning = f"<p>{escape(report.meaning())}</p>" if report.meaning() else ""
    statement = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs)
    return (
        f'<style>{_STYLE}</style><div class="skpmtl-privacy">'
        f'<span class="{kind}">{escape(badge)}</span>{meaning}{_list(report.found())}'
        f"{_list(facts)}{_releases(report)}"
        f"<details><summary>The whole statement</summary>{statement}</details></div>"
    )


def _list(facts):
    rows = "".join(f"<dt>{escape(k)}</dt><dd>{escape(str(v))}</dd>" for k, v in facts.items())
    return f"<dl>{rows}</dl>" if rows else ""


def _releases(report):
    """Table of the releases, folded."""
    releases = report.releases
    if not releases:
        return ""
    names = [name for name in _COLUMNS if any(name in release for release in releases)]
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(release.get(name))}</td>" for name in names) + "</tr>"
        for release in releases[:_MOST_RELEASES]
    )
    counts = ", ".join(f"{count} {mechanism}" for mechanism, count, *_ in report.kinds())
    more = f"<p>... {len(releases)} in all</p>" if len(releases) > _MOST_RELEASES else ""
    return (
        f"<details><summary>Releases: {escape(counts or str(len(releases)))}</summary>"
        f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>{more}</details>'
    )


def _cell(value):
    if value is None:
        return ""
    return escape(f"{value:.6g}" if isinstance(value, float) else str(value))
