package sandboxtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/internal/cgroup"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// trees are shell scripts that try to leave something behind. MARK is
// replaced by a word that finds their processes on the host; ./s sleeps under
// that name.
var trees = map[string]string{
	"forks":                 `for i in 1 2 3 4; do ./s MARK & done; echo ready; wait`,
	"double forks":          `(./s MARK & ) ; (sh -c './s MARK & echo x >/dev/null; ./s MARK' & ); echo ready; ./s MARK`,
	"new sessions":          `setsid ./s MARK & setsid sh -c 'setsid ./s MARK & ./s MARK' & echo ready; wait`,
	"ignores signals":       `trap "" TERM HUP INT; ./s MARK & echo ready; while :; do sleep 1; done`,
	"closes streams":        `setsid sh -c 'exec 0<&- 1>&- 2>&-; ./s MARK' & echo ready; wait`,
	"forks for ever":        `trap "" TERM; ./s MARK & echo ready; while :; do ./s MARK & sleep 0.01; done`,
	"ends by itself":        `setsid ./s MARK & sleep 0.1; echo ready; exit 0`,
	"stops itself":          `./s MARK & echo ready; kill -STOP $$`,
	"kills its parent":      `setsid ./s MARK & sleep 0.1; echo ready; kill -9 $PPID; wait`,
	"kills its group":       `trap "" TERM; setsid ./s MARK & sleep 0.1; kill -TERM 0; echo ready; wait`,
	"stops its parent":      `setsid ./s MARK & ./s MARK & echo ready; read go; kill -STOP $PPID; wait`,
	"keeps its parent down": `trap "" TERM; setsid ./s MARK & ./s MARK & echo ready; read go; while :; do kill -STOP $PPID; done`,
}

// shrinking are those of which nothing may be left when the test looks.
var shrinking = []string{"ends by itself", "kills its parent"}

const sleeper = "#!/bin/bash\nexec -a \"$1\" sleep 1234567\n"

// kinds of jails: what is left behind could be due to any of them.
var kinds = []struct {
	name   string
	change func(s *sandbox.Spec, dir string)
}{
	{"plain", func(*sandbox.Spec, string) {}},
	{"dial", func(s *sandbox.Spec, _ string) { s.Dial = true }},
	{"network", func(s *sandbox.Spec, _ string) { s.Network = sandbox.NetworkFull }},
	{"overlay", func(s *sandbox.Spec, dir string) {
		s.Lower, s.Workspace = []string{s.Workspace}, filepath.Join(dir, "upper")
	}},
}

// kindSpec returns a jail of the kind with number n that runs a script in dir.
func kindSpec(n int, dir, script string, allow func(sandbox.Spec) sandbox.Spec) sandbox.Spec {
	spec := sandbox.Spec{Args: []string{"bash", "-c", script}, Workspace: filepath.Join(dir, "workspace"), Grace: treeGrace}
	kinds[n].change(&spec, dir)
	if allow != nil {
		spec = allow(spec)
	}
	return spec
}

const treeGrace = 50 * time.Millisecond

// killedAtOnce is how many jails of Kill run at the same time: they mostly
// wait for their grace.
const killedAtOnce = 6

// Kill starts trees of processes, of each sort as many as rounds says, and
// ends them in every way there is, some before they have begun: nothing of
// them is alive then. What configures the Spec for the backend is allow, which
// may be nil.
func Kill(t *testing.T, b sandbox.Backend, rounds int, allow func(sandbox.Spec) sandbox.Spec) {
	Require(t, b, sandbox.FeatureKill)
	word := fmt.Sprintf("mark-%d-%x-", os.Getpid(), rand.Uint32())
	k := &killing{b: b, allow: allow, label: strings.TrimSuffix("kill."+word, "-"), census: &census{word: word}}
	possible := k.possible(t)
	open := descriptors(t)
	work := make(chan tree)
	var workers sync.WaitGroup
	for range killedAtOnce {
		dir := treeDir(t)
		workers.Go(func() {
			for tr := range work {
				k.endOne(t, tr, dir)
			}
		})
	}
	n := 0
	for round := range rounds {
		for i, name := range slices.Sorted(maps.Keys(trees)) {
			n++
			work <- tree{
				name: name, mark: fmt.Sprintf("%s%d.", word, n), kind: possible[(round+i)%len(possible)], ending: (round / len(possible)) % endings,
			}
		}
	}
	close(work)
	workers.Wait()
	t.Logf("%d trees were ended", n)
	if left := carrying(word); len(left) > 0 {
		t.Errorf("alive in the end: %q", left)
	}
	for _, name := range cgroup.Names() {
		if strings.HasPrefix(name, k.label) {
			t.Errorf("the control group %s is left", name)
		}
	}
	if got := descriptors(t); got > open {
		t.Errorf("%d descriptors are open, %d more than before", got, got-open)
	}
}

type killing struct {
	b      sandbox.Backend
	allow  func(sandbox.Spec) sandbox.Spec
	label  string
	census *census
}

// possible lists the kinds of jails that the backend can make, by making one.
func (k *killing) possible(t *testing.T) (possible []int) {
	t.Helper()
	dir := treeDir(t)
	for n, kind := range kinds {
		_, err := sandbox.Run(t.Context(), k.b, kindSpec(n, dir, "true", k.allow), sandbox.Streams{})
		_, refused := errors.AsType[*sandbox.FieldError](err)
		if _, weak := errors.AsType[*sandbox.UnsupportedError](err); weak || refused {
			t.Logf("without jails of the kind %s: %v", kind.name, err)
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", kind.name, err)
		}
		possible = append(possible, n)
	}
	return possible
}

type tree struct {
	name   string
	mark   string
	kind   int
	ending int
}

func (tr tree) String() string {
	return fmt.Sprintf("tree that %s, %s, ending %d", tr.name, kinds[tr.kind].name, tr.ending)
}

const endings = 4

// endOne starts the tree and ends it.
func (k *killing) endOne(t *testing.T, tr tree, dir string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := time.Now()
	if tr.ending == 3 { // the others begin to grow before they are ended
		stop := time.AfterFunc(rand.N(30*time.Millisecond), cancel)
		defer stop.Stop()
	}
	r, w := io.Pipe()
	defer r.Close()
	spec := kindSpec(tr.kind, dir, strings.ReplaceAll(trees[tr.name], "MARK", tr.mark), k.allow)
	spec.Label = k.label
	p, err := sandbox.Start(ctx, k.b, spec, sandbox.Streams{Stdout: w, StdinPipe: true})
	if err != nil && ctx.Err() == nil {
		t.Errorf("%v: %v", tr, err)
		return
	}
	ended := time.Now()
	if err == nil {
		k.grow(t, tr, p, r)
		ended = time.Now()
		k.end(t, tr, p, cancel)
	}
	if left := k.census.carrying(tr.mark); len(left) > 0 {
		t.Errorf("%v: alive after the end: %q", tr, left)
	}
	// A second is plenty, unless the machine is so busy that all takes long.
	if took, most := time.Since(ended), treeGrace+max(slowtest.Limit(k.patience()), 10*ended.Sub(began)); took > most {
		t.Errorf("%v: the end took %v, more than %v", tr, took, most)
	}
}

// patience is how long an end may take after the grace. A service is asked
// when nothing else has helped.
func (k *killing) patience() time.Duration {
	if len(keepers(k.b)) > 0 {
		return 10 * time.Second
	}
	return time.Second
}

// keepers returns the backend if a service holds its jails.
func keepers(b sandbox.Backend) []sandbox.Keeper {
	if keeper, ok := b.(sandbox.Keeper); ok {
		return []sandbox.Keeper{keeper}
	}
	return nil
}

// grow returns when the tree is as large as it has to be, which is at once
// where it is to be ended at any moment.
func (k *killing) grow(t *testing.T, tr tree, p *sandbox.Process, out *io.PipeReader) {
	lines := bufio.NewReader(out)
	if tr.ending == 3 {
		go func() { _, _ = io.Copy(io.Discard, lines) }() // ends when out is closed
		_, _ = io.WriteString(p.Stdin(), "go\n")          // it may have ended already
		return
	}
	go func() { <-p.Done(); out.CloseWithError(io.ErrUnexpectedEOF) }()
	if got, err := lines.ReadString('\n'); got != "ready\n" {
		t.Errorf("%v: the script said %q, err %v", tr, got, err)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }() // ends when out is closed
	if slices.Contains(shrinking, tr.name) {
		return
	}
	_, _ = io.WriteString(p.Stdin(), "go\n")
	eventually(t, 10*time.Second, func() bool { return len(k.census.carrying(tr.mark)) >= 2 }, tr.String()+": it does not grow")
}

// end ends the jail in one of the ways there are.
func (k *killing) end(t *testing.T, tr tree, p *sandbox.Process, cancel func()) {
	var err error
	switch tr.ending {
	case 0:
		err = p.Stop(context.Background())
	case 1:
		cancel()
	case 2:
		err = p.Close(context.Background())
	}
	_, failed := p.Wait()
	if err = errors.Join(err, failed); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("%v: %v", tr, err)
	}
}

// treeDir makes what a jail of any kind needs.
func treeDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"workspace", "upper"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "workspace", "s"), []byte(sleeper), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

func eventually(t *testing.T, d time.Duration, done func() bool, otherwise string) {
	t.Helper()
	if !slowtest.Eventually(d, 5*time.Millisecond, done) {
		t.Error(otherwise)
	}
}
