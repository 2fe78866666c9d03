import subprocess
import sys
import time

from harness.train.host import HostWatch

SPIN = "import time; end = time.process_time() + {0}\nwhile time.process_time() < end: pass"


def test_our_own_work_is_not_foreign():
    watch = HostWatch()
    process = subprocess.Popen([sys.executable, "-c", SPIN.format(0.5)])
    living = watch._ours
    time.sleep(0.2)
    process.wait()
    found = watch.conditions()
    assert found.load_average >= 0
    assert found.foreign_cpu_share is None or 0 <= found.foreign_cpu_share <= 1
    assert living <= HostWatch()._ours - 0.5


def test_somebody_elses_work_is(monkeypatch):
    """Counters of a two-core machine over ten seconds, of which we took six core-seconds and others eight."""
    import harness.train.host as subject

    machine, ours = iter([(100.0, 50.0), (120.0, 64.0)]), iter([10.0, 16.0])
    monkeypatch.setattr(subject, "_machine_seconds", lambda: next(machine))
    monkeypatch.setattr(subject, "_our_seconds", lambda: next(ours))
    assert HostWatch().conditions().foreign_cpu_share == 8 / 20
