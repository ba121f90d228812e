"""What a job needs of its functions: from measured calls to the cheapest `Runtime`.

::

    measured.py ─► fitting.py, memory.py ─► forecast.py ─► search.py
    (a run)        (what one call needs)    │ (what to      (which settings
                   slowdown.py              │  expect)       meet a target)
                                            ▼
                                 simulation.py, loads.py (the pool's own rules, in virtual time)

`queueing.py` has closed forms, as a check. docs/faas-capacity.md has the maths in short.
"""
