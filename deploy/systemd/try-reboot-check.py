"""What try-reboot.sh expects at the end, looked for in the container."""

import collections
import json
import pathlib
import subprocess
import time

ITEMS = 30
POOL = ["penstock", "--server", "nats://127.0.0.1:4222", "--creds", "/root/operator.creds"]


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def pool(*arguments):
    return json.loads(output(*POOL, *arguments, "-o", "json"))


def expect(what, got, want):
    if got != want:
        raise SystemExit(f"{what}: {got}, not {want}")


results = [json.loads(line) for line in open("/root/results/results.jsonl")]
expect("items with a result", sorted(r["id"] for r in results), sorted(str(n + 1) for n in range(ITEMS)))
expect("outcomes of items", collections.Counter(r["outcome"] for r in results), {"success": ITEMS})
print(f"ok: each of {ITEMS} items has one result, and it is a success")

git = ["git", "-C", "/srv/repo"]
branches = output(*git, "for-each-ref", "--format=%(refname:short)", "refs/heads/penstock").split()
expect("branches", sorted(branches), sorted(r["branch"] for r in results))
for r in results:
    expect(f"commits of item {r['id']}", output(*git, "log", "--format=%s", f"main..{r['branch']}"), f"item {r['id']}\n")
expect("work trees of the repository", len(output(*git, "worktree", "list").splitlines()), 1)
print("ok: each item has one branch with one commit")

jobs = pool("job", "ls", "--limit", "10000")
ids = {job["id"] for job in jobs}
accepted = set(open("/out/accepted").read().split())
expect("accepted jobs that are lost", accepted - ids, set())
expect("jobs of results that are lost", {r["job"] for r in results} - ids, set())
expect("outcomes of jobs", {job.get("outcome") for job in jobs}, {"success"})
expect("dead letters", pool("dead", "ls"), [])
# The answer to a submission can be lost with the power, one at each of two ends.
unheard = len(ids) - len(accepted) - ITEMS
if not 0 <= unheard <= 2:
    raise SystemExit(f"{unheard} jobs more than were submitted")
print(f"ok: none of {len(accepted)} accepted jobs is lost, none is there twice")

again = 0
for job in jobs:
    events = [json.loads(line) for line in output(*POOL, "job", "events", job["id"], "-o", "jsonl").splitlines()]
    expect(f"events of {job['id']}", [e["seq"] for e in events], list(range(1, len(events) + 1)))
    expect(f"ends of {job['id']}", sum(e["kind"] == "job.finished" for e in events), 1)
    again += sum(e["kind"] == "job.claimed" for e in events) > 1
if not again:
    raise SystemExit("no job was interrupted: the reboots were not in the middle")
print(f"ok: the logs of all jobs are complete and end once; {again} jobs ran again")


def leftovers():
    # The worker itself, and its process that ends what jails leave, stay.
    ours = ("/usr/local/bin/penstock worker", "penstock-reaper")
    left = [p for p in output("ps", "-u", "penstock-worker", "-o", "args=").splitlines() if not p.startswith(ours)]
    left += [str(p) for p in pathlib.Path("/var/lib/penstock-worker/workspaces").glob("*")]
    return left


end = time.monotonic() + 60
while leftovers() and time.monotonic() < end:
    time.sleep(0.2)
expect("processes and workspaces that are left", leftovers(), [])
print("ok: no process of a jail and no workspace is left")
