package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox/exectest"
)

// origins are repositories that a server gives out over HTTP. What it sends is
// kept, pack by pack.
type origins struct {
	*fixture
	url, root, packs string
	tips             []tip
}

// A tip is a commit that a job can begin from. Its file "who" has its name.
type tip struct{ repo, commit, who string }

// recorder stands before git's own pack-objects, and keeps what that gives out.
const recorder = `#!/bin/sh
file=$(mktemp "$PACKS/$(basename "$PWD")-XXXXXXXX") && "$@" > "$file" && cat "$file"`

// origins makes repositories of some branches each: a trunk that all have, and
// a commit with a file of that many bytes that no other has.
func (f *fixture) origins(repos, branches, bytes int) *origins {
	f.Helper()
	o := &origins{fixture: f, root: f.TempDir(), packs: f.TempDir()}
	for r := range repos {
		name := fmt.Sprintf("r%d.git", r)
		work := filepath.Join(f.TempDir(), name)
		f.git("clone", "-q", f.repo, work)
		for b := range branches {
			f.git("-C", work, "checkout", "-q", "-b", fmt.Sprint("b", b), "main")
			made := tip{repo: name, who: fmt.Sprint(name, " ", b)}
			f.must(os.WriteFile(filepath.Join(work, "who"), []byte(made.who+"\n"), 0o644))
			data := make([]byte, bytes)
			_, _ = rand.NewChaCha8([32]byte{byte(r), byte(b)}).Read(data) // always whole
			f.must(os.WriteFile(filepath.Join(work, "data"), data, 0o644))
			f.git("-C", work, "add", "-A")
			f.git("-C", work, "commit", "-qm", fmt.Sprint("branch ", b))
			made.commit = strings.TrimSpace(f.git("-C", work, "rev-parse", "HEAD"))
			o.tips = append(o.tips, made)
		}
		f.git("clone", "-q", "--bare", work, filepath.Join(o.root, name))
	}
	hook := filepath.Join(f.TempDir(), "record")
	f.must(exectest.WriteFile(hook, []byte(recorder), 0o755))
	git, err := exec.LookPath("git")
	f.must(err)
	server := httptest.NewServer(&cgi.Handler{Path: git, Args: []string{"http-backend"}, Env: []string{
		"GIT_PROJECT_ROOT=" + o.root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=/dev/null", "PACKS=" + o.packs,
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=uploadpack.packObjectsHook", "GIT_CONFIG_VALUE_0=" + hook,
	}, InheritEnv: []string{"PATH"}})
	f.Cleanup(server.Close)
	o.url = server.URL
	return o
}

// examine is an agent that finds in its workspace the commit that it was
// promised, all of it, before and after something, and says so.
const examine = `look() {
	test "$(git rev-parse HEAD)" = "$1" && test "$(cat who)" = "$2" && test -z "$(git status --porcelain)" &&
	git fsck --strict --no-progress && test "$(git hash-object --no-filters data)" = "$(git rev-parse HEAD:data)"
}
look "$1" "$2" && echo begun && eval "$3" && look "$1" "$2" && echo "$2" > found`

// agent is the command of a job that examines a tip.
func (t tip) agent(between string) []string {
	return []string{"sh", "-c", examine, "sh", t.commit, t.who, between}
}

// batch runs jobs over tips, in any order, and returns the worker of each job.
func (o *origins) batch(jobs int, tips []tip, between string) (workers map[string]string) {
	o.Helper()
	var lines []string
	for n := range jobs {
		at := tips[n%len(tips)]
		line, err := json.Marshal(map[string]any{
			"item": fmt.Sprint("job-", n), "repo": map[string]string{"url": o.url + "/" + at.repo, "commit": at.commit},
			"agent": map[string]any{"name": "command", "command": at.agent(between)},
		})
		o.must(err)
		lines = append(lines, string(line))
	}
	seed := rand.Uint64()
	o.Logf("%d jobs, seed %d", len(lines), seed)
	rand.New(rand.NewPCG(seed, 1)).Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	file, out := filepath.Join(o.TempDir(), "jobs.jsonl"), filepath.Join(o.TempDir(), "results")
	o.must(os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o644))
	began := time.Now()
	batch := o.begin("batch", "run", file, "--max-parallel", "12", "--out", out)
	if code := o.ended(batch, 10*time.Minute); code != 0 {
		o.Errorf("the batch ended with %d:\n%s", code, batch.log)
	}
	results := readResults(o.T, out)
	workers = map[string]string{}
	for id, r := range results {
		workers[id] = r.Worker
		if r.FilesChanged != 1 {
			o.Errorf("job %s changed %d files, want the one that says what it found", id, r.FilesChanged)
		}
	}
	if len(results) != len(lines) {
		o.Errorf("%d results of %d jobs", len(results), len(lines))
	}
	o.Logf("%d jobs in %.1f s", len(results), time.Since(began).Seconds())
	return workers
}

// sent lists the objects that the server gave out of a repository, with how
// often, and in how many packs.
func (o *origins) sent(name string) (objects map[string]int, packs int) {
	o.Helper()
	objects = map[string]int{}
	files, err := filepath.Glob(filepath.Join(o.packs, name+"-*"))
	o.must(err)
	// A pack may leave out what an object is the difference to.
	scratch := filepath.Join(o.TempDir(), name)
	o.git("clone", "-q", "--bare", filepath.Join(o.root, name), scratch)
	for _, file := range files {
		pack, err := os.ReadFile(file)
		o.must(err)
		cmd := exec.Command("git", "-C", scratch, "index-pack", "--stdin", "--fix-thin", "--keep")
		cmd.Stdin = strings.NewReader(string(pack))
		said, err := cmd.Output()
		o.must(err)
		_, id, _ := strings.Cut(strings.TrimSpace(string(said)), "\t")
		index, err := os.Open(filepath.Join(scratch, "objects/pack/pack-"+id+".idx"))
		o.must(err)
		cmd = exec.Command("git", "show-index")
		cmd.Stdin = index
		list, err := cmd.Output()
		o.must(err)
		index.Close()
		for _, object := range inOrder(string(list))[:binary.BigEndian.Uint32(pack[8:])] { // the others were added here
			objects[object]++
		}
	}
	return objects, len(files)
}

// sentOnce wants all objects of the commits to be given out, each once.
func (o *origins) sentOnce(name string, commits []string) {
	o.Helper()
	list := []string{"-C", filepath.Join(o.root, name), "rev-list", "--objects", "--no-object-names"}
	want := strings.Fields(o.git(append(list, commits...)...))
	got, packs := o.sent(name)
	for object, times := range got {
		if times != 1 {
			o.Errorf("%s: object %s was given out %d times", name, object, times)
		}
	}
	if len(got) != len(want) || packs > len(commits) {
		o.Errorf("%s: %d objects were given out in %d packs, want %d for %d commits", name, len(got), packs, len(want), len(commits))
	}
	o.Logf("%s: %d objects, each once, in %d packs", name, len(got), packs)
}

// inOrder returns the objects of a pack's index as they lie in the pack.
func inOrder(index string) []string {
	at := map[string]int{}
	var objects []string
	for line := range strings.Lines(index) {
		words := strings.Fields(line)
		at[words[1]], _ = strconv.Atoi(words[0])
		objects = append(objects, words[1])
	}
	slices.SortFunc(objects, func(a, b string) int { return at[a] - at[b] })
	return objects
}

// twoWorkers starts a pool and two workers on the data directory of one host.
func (f *fixture) twoWorkers(args ...string) (first, second *program) {
	f.Helper()
	f.serve()
	start := func(name string) *program {
		return f.worker(slices.Concat([]string{"--slots", "3", "--name", name}, args)...)
	}
	return start("first"), start("second")
}

// asked is a number that CI has time for, unless the environment asks for another.
func asked(variable string, small int) int {
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return n
	}
	return small
}

// Two workers of one host and many jobs over several repositories and commits
// of which nothing is there yet: the server gives out each object once, nothing
// waits for ever, and what they share is whole.
func TestTwoWorkersFetchEachObjectOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	jobs := asked("PENSTOCK_TEST_HOST_JOBS", 60)
	o := f.origins(min(5, 2+jobs/50), min(20, 2+jobs/10), 20_000)
	first, second := f.twoWorkers()
	did := map[string]int{}
	for _, worker := range o.batch(jobs, o.tips, "true") {
		did[worker]++
	}
	if did["first"] == 0 || did["second"] == 0 {
		t.Errorf("the workers did %v jobs: there was nothing to share", did)
	}
	commits := map[string][]string{}
	for _, tip := range o.tips {
		commits[tip.repo] = append(commits[tip.repo], tip.commit)
	}
	for name, commits := range commits {
		o.sentOnce(name, commits)
	}
	first.end()
	second.end()
	f.cacheIsWhole()
}

// cacheIsWhole lets git check what the workers share.
func (f *fixture) cacheIsWhole() {
	f.Helper()
	n := 0
	for _, pattern := range []string{"mirrors/*/mirror.git", "mirrors/*/bases/*/git"} {
		found, err := filepath.Glob(filepath.Join(f.data, "work", pattern))
		f.must(err)
		for _, dir := range found {
			n++
			f.git("--git-dir="+dir, "fsck", "--full", "--strict", "--no-progress")
		}
	}
	if n == 0 {
		f.Error("there is no cache")
	}
}

// While jobs run, the disk gets low again and again: what no job uses goes, and
// comes back when one needs it. What a job uses stays, down to its last file,
// whichever of the workers evicts.
func TestEvictionLeavesWhatJobsUse(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	work := filepath.Join(f.data, "work")
	// A commit takes a megabyte of its mirror, and two more while it is kept for
	// jobs. All that there are have no room beside what is reserved.
	f.small(work, 64)
	f.env = append(f.env, "PENSTOCK_WORKER_RESERVE=24MiB")
	o, signs := f.origins(2, 10, 1<<20), f.TempDir()
	first, second := f.twoWorkers("--ro-path", signs)
	// These two are the first that would go, and run from beginning to end.
	var held []string
	for _, tip := range o.tips[:2] {
		args := []string{"submit", "-o", "id", "--repo", o.url + "/" + tip.repo, "--ref", tip.commit, "--"}
		held = append(held, strings.TrimSpace(f.run(append(args, tip.agent("while [ ! -e "+signs+"/go ]; do sleep 0.1; done")...)...)))
	}
	for _, id := range held {
		f.runs(id)
	}
	o.batch(asked("PENSTOCK_TEST_EVICT_JOBS", 30), o.tips[2:], "sleep 0.5")
	f.must(os.WriteFile(filepath.Join(signs, "go"), nil, 0o600))
	f.run(append([]string{"wait", "--timeout", patience(60)}, held...)...)
	evicted := 0
	for _, w := range []*program{first, second} {
		evicted += strings.Count(w.log.String(), "evicted from the cache")
	}
	kept, err := filepath.Glob(filepath.Join(work, "mirrors/*/bases/*/git"))
	f.must(err)
	if evicted == 0 || len(kept) >= 20 {
		t.Errorf("evicted %d times, and %d commits of 20 are kept: there was room enough", evicted, len(kept))
	}
	t.Logf("evicted %d times; %d commits of 20 are kept", evicted, len(kept))
	// What evicts would do so while git checks.
	first.end()
	second.end()
	f.cacheIsWhole()
}
