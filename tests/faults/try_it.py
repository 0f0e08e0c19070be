import sys, time
from pathlib import Path
import tempfile
from tests.faults.harness import Harness

t = time.time()
h = Harness(Path(tempfile.mkdtemp()))
print("up", time.time() - t)
for s, p in h.points.items():
    print(s, len(p))
    [print("   ", x) for x in p]
h.close()
