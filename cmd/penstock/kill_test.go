package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// writer writes a numbered file every 50 ms until it is killed.
const writer = `i=0; while :; do i=$((i+1)); echo $i > n$i; sleep 0.05; done`

// Workers, agents and both, one after the other, are killed at random points:
// every file that was older than a second is in a salvage after the next
// start, and nothing else is left. PENSTOCK_TEST_KILLS says how often.
func TestKilledAtRandomPoints(t *testing.T) {
	t.Parallel()
	kills := 30
	if asked, err := strconv.Atoi(os.Getenv("PENSTOCK_TEST_KILLS")); err == nil {
		kills = asked
	} else if testing.Short() {
		kills = 6
	}
	seed := rand.Uint64()
	for i, victim := range []string{"worker", "agent", "both"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			k := &killing{fixture: newFixture(t), victim: victim, rng: rand.New(rand.NewPCG(seed, uint64(i)))}
			k.serve()
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			})
			for n := (kills + 2 - i) / 3; n > 0; n -= checkEvery {
				k.rounds(min(n, checkEvery))
			}
			t.Logf("%d files of %d killed attempts are salvaged", k.files, k.kills)
		})
	}
}

// checkEvery is after how many kills all is looked at.
const checkEvery = 25

// A killing is a fixture with a victim that dies again and again.
type killing struct {
	*fixture
	victim       string
	rng          *rand.Rand
	kills, files int
}

// rounds kills so many times, and then looks for what should be there and for
// what should not.
func (k *killing) rounds(n int) {
	k.Helper()
	want := map[string][]string{}
	w := k.start1()
	for i := range n {
		id := k.submit(writer, "--max-attempts", "1")
		if i == 0 { // so that there is something to look for, however few they are
			k.eventually(30*time.Second, "the agent writes", func() bool { return len(k.written(id)) > 0 })
		}
		k.sleep(2500)
		want[id] = k.written(id)
		if k.victim != "worker" {
			k.killAgent(id)
		}
		if k.victim == "both" {
			k.sleep(300) // while the worker collects, stores and settles
		}
		if k.victim != "agent" {
			w.kill()
			w = k.start1()
		}
		k.kills++
		k.try("job", "cancel", id) // which may have ended
	}
	var left []string
	gone := func() bool {
		trash, err := filepath.Glob(filepath.Join(k.data, "work/trash/*"))
		k.must(err)
		left = slices.Concat(k.workspaces(), trash, jailed(k.data))
		return len(left) == 0
	}
	if !slowtest.Eventually(90*time.Second, 50*time.Millisecond, gone) {
		k.Fatalf("what was killed is not removed: %q\n%s", left, k.run("job", "ls", "-o", "jsonl"))
	}
	w.end()
	k.unharmed()
	k.salvaged(want)
}

// start1 starts a worker with one slot.
func (k *killing) start1() *program {
	k.Helper()
	return k.worker("--slots", "1", "--workspace", []string{"overlay", "clone"}[k.kills%2])
}

// sleep waits up to so many milliseconds, for the next blow.
func (k *killing) sleep(limit int) { time.Sleep(time.Duration(k.rng.IntN(limit)) * time.Millisecond) }

// killAgent kills the agent of a job alone, if it runs.
func (k *killing) killAgent(id string) {
	k.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	k.must(err)
	for _, name := range found {
		args, _ := os.ReadFile(name) // a process that has ended has none
		env, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "environ"))
		if string(args) != "sh\x00-c\x00"+writer+"\x00" || !bytes.Contains(env, []byte(id)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		k.must(err)
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
	}
}

// written lists the files that a job's agent had written a second ago.
func (k *killing) written(id string) []string {
	k.Helper()
	before := time.Now().Add(-time.Second)
	found, err := filepath.Glob(filepath.Join(k.data, "work/jobs", id+".*", "workspace/n[0-9]*"))
	k.must(err)
	var names []string
	for _, name := range found {
		if info, err := os.Stat(name); err == nil && info.Size() > 0 && info.ModTime().Before(before) {
			names = append(names, filepath.Base(name))
		}
	}
	return names
}

// salvaged looks for the files in what was saved of the jobs.
func (k *killing) salvaged(want map[string][]string) {
	k.Helper()
	for id, names := range want {
		k.files += len(names)
		if len(names) == 0 {
			continue
		}
		patch, code, told := k.try("job", "salvage", id, "--show")
		for _, name := range names {
			if !strings.Contains(patch, "\n+++ b/"+name+"\n") {
				k.Errorf("job %s: file %s is not in the salvage (%d, %s)", id, name, code, told)
				break
			}
		}
	}
}
