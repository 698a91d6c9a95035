"""The order of the gallery: quick start first, what needs most background last."""

_ORDER = (
    "plot_quick_start.py",
    "plot_task_column.py",
    "plot_school.py",
    "plot_new_tasks.py",
    "plot_curves.py",
    "plot_missing_outcomes.py",
    "plot_private_mean.py",
    "plot_how_sure.py",
    "plot_public_start.py",
    "plot_task_facts.py",
    "plot_few_shot.py",
)


class ByDifficulty:
    """Sort key of sphinx-gallery: scripts in the order above, then the others by name."""

    def __init__(self, src_dir):
        pass

    def __call__(self, filename):
        return _ORDER.index(filename) if filename in _ORDER else len(_ORDER), filename

    def __repr__(self):
        return "ByDifficulty"  # sphinx-gallery compares configurations by it
