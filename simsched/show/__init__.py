"""Displays: charts, Gantt charts, traces for Perfetto, drawings, reports, notebooks."""

from simsched.base.views import VIEWS

VIEWS.update(
    html="simsched.show.notebook:html",
    gantt="simsched.show.gantt:gantt",
    perfetto="simsched.show.perfetto:to_perfetto",
    study="simsched.show.study:draw_study",
    check_figures="simsched.show.study:check_figures",
    ranking="simsched.show.ranking:draw_ranking",
    result="simsched.show.results:draw_result",
)
