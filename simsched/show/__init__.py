"""Everything that is seen: charts, Gantt charts, traces for Perfetto, drawings, reports, notebooks."""

from simsched.base.shown import VIEWS

VIEWS.add(
    {
        "html": "simsched.show.notebook:html",
        "gantt": "simsched.show.gantt:gantt",
        "perfetto": "simsched.show.perfetto:to_perfetto",
        "robustness": "simsched.show.results:draw_robustness",
        "samples": "simsched.show.results:draw_samples",
        "sweep": "simsched.show.results:draw_sweep",
        "sensitivity": "simsched.show.tornado:tornado",
        "breakeven": "simsched.show.results:draw_breakeven",
        "explanation": "simsched.show.results:draw_explanation",
        "throughput": "simsched.show.results:draw_throughput",
        "study": "simsched.show.study.figures:draw",
        "check of figures": "simsched.show.study.figure_tables:check_figures",
    }
)
