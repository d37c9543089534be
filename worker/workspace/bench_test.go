package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// A cost is the time that a step took, and that of processors.
type cost struct{ wall, cpu time.Duration }

// A life is the steps of one workspace, and what it took before its first.
type life struct {
	steps  [5]cost // provision, first status, commit, collect, release
	bytes  int64
	inodes int
}

// A way gives a job files of its own, and takes them back.
type way struct {
	name      string
	provision func(n int)
	size      func() (bytes int64, inodes int)
	agent     func(script string) (said string)
	collect   func()
	release   func()
}

// BenchmarkWorkspace takes workspaces through their life in repositories of
// several sizes: ours, and what people make with git by hand, in turn.
func BenchmarkWorkspace(b *testing.B) {
	for _, files := range []int{600, 13_000, 80_000} {
		b.Run(fmt.Sprint(files), func(b *testing.B) {
			repo, commit := generated(b, files)
			s := openAs(b, Overlay, Limits{})
			ask := Request{Repo: jobs.Repo{URL: repo, Commit: commit}, Isolation: jobs.IsolationWorktree}
			ways := []way{
				ours(b, "overlay", s, ask), ours(b, "clone", openAs(b, Clone, Limits{}), ask),
				byHand(b, "git worktree add", repo, []string{"worktree", "add", "-q", "--detach"}, []string{"worktree", "remove", "--force"}),
				byHand(b, "git clone --shared", repo, []string{"clone", "-q", "--shared", "."}, nil),
			}
			lives := make([][]life, len(ways))
			small := ask
			small.Repo.URL, small.Repo.Commit = generated(b, 600)
			var acquired, collected, ofSmall []time.Duration
			tenFiles(b, s, ask, "warm") // the first one fetches, and makes the template
			tenFiles(b, s, small, "warm.small")
			for n := 0; b.Loop(); n++ {
				for i := range 20 {
					a, c := tenFiles(b, s, ask, fmt.Sprintf("a.%d-%d", n, i))
					acquired, collected = append(acquired, a), append(collected, c)
					a, _ = tenFiles(b, s, small, fmt.Sprintf("s.%d-%d", n, i))
					ofSmall = append(ofSmall, a)
				}
				for i, w := range ways {
					lives[i] = append(lives[i], w.live(b, n))
				}
			}
			slices.Sort(acquired)
			slices.Sort(collected)
			slices.Sort(ofSmall)
			half := len(acquired) / 2
			b.ReportMetric(ms(acquired[half]), "acquire-p50-ms")
			b.ReportMetric(float64(acquired[half])/float64(ofSmall[half]), "times-600-files")
			b.ReportMetric(ms(collected[half]), "collect-10-files-p50-ms")
			b.ReportMetric(float64(middle(lives[2], 0).wall)/float64(acquired[half]), "times-worktree-add")
			all, took := atOnce(b, s, ask, 1000)
			b.ReportMetric(took.Seconds(), "1000-at-once-s")
			for _, w := range all {
				if err := w.Close(); err != nil {
					b.Error(err)
				}
			}
			b.Log(table(ways, lives))
		})
	}
}

// table has a line for each way: the medians of wall time and processor time
// of each step in milliseconds, and what an idle workspace takes.
func table(ways []way, lives [][]life) string {
	var out strings.Builder
	t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nwall/processor ms\tprovision\tfirst status\tcommit\tcollect\trelease\tKiB\tinodes")
	for i, w := range ways {
		fmt.Fprint(t, w.name)
		for step := range lives[i][0].steps {
			c := middle(lives[i], step)
			fmt.Fprintf(t, "\t%.1f/%.1f", ms(c.wall), ms(c.cpu))
		}
		fmt.Fprintf(t, "\t%d\t%d\n", lives[i][0].bytes>>10, lives[i][0].inodes)
	}
	t.Flush()
	return out.String()
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func middle(lives []life, step int) cost {
	var wall, cpu []time.Duration
	for _, l := range lives {
		wall, cpu = append(wall, l.steps[step].wall), append(cpu, l.steps[step].cpu)
	}
	slices.Sort(wall)
	slices.Sort(cpu)
	return cost{wall[len(wall)/2], cpu[len(cpu)/2]}
}

func generated(b *testing.B, files int) (repo, commit string) {
	b.Helper()
	repo = filepath.Join(b.TempDir(), "repo")
	for i := range files {
		name := fmt.Sprintf("d%d/e%d/f%d.go", i%37, i%53, i)
		write(b, repo, name, fmt.Sprintln("package", name, i*i*7919))
	}
	run(b, repo, "git", "init", "-q", "-b", "main")
	run(b, repo, "git", "config", "gc.auto", "0")
	run(b, repo, "git", "add", "-A")
	run(b, repo, "git", "commit", "-q", "-m", "first")
	run(b, repo, "git", "gc", "-q")
	return repo, run(b, repo, "git", "rev-parse", "HEAD")
}

// tenFiles takes the time of an overlay in which files were written, and no git
// was used.
func tenFiles(b *testing.B, s *Spaces, ask Request, id string) (acquire, collect time.Duration) {
	b.Helper()
	begin := time.Now()
	ask.ID = id
	w, err := s.Prepare(b.Context(), ask)
	acquire = time.Since(begin)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 10 {
		write(b, w.Dir(), fmt.Sprintf("new/f%d", i), "new\n")
	}
	begin = time.Now()
	if c, err := w.Collect(b.Context()); err != nil || c.Files != 10 {
		b.Fatalf("got %+v, %v", c, err)
	}
	collect = time.Since(begin)
	if err := w.remove(); err != nil {
		b.Fatal(err)
	}
	return acquire, collect
}

// routine is what an agent does. It tells the time of each command.
const routine = `TIMEFORMAT='time %3R %3U %3S'
time git status --porcelain
mkdir new; for i in 0 1 2 3 4 5 6 7 8 9; do echo new > new/f$i; done
time { git add -A && git commit -qm work; }`

func (w way) live(b *testing.B, n int) (l life) {
	b.Helper()
	l.steps[0] = measure(b, func() { w.provision(n) })
	l.bytes, l.inodes = w.size()
	step := 1
	for line := range strings.Lines(w.agent(routine)) {
		var wall, user, sys float64
		if _, err := fmt.Sscanf(line, "time %f %f %f", &wall, &user, &sys); err != nil || step > 2 {
			b.Fatalf("%s: got %q", w.name, line)
		}
		l.steps[step] = cost{time.Duration(wall * 1e9), time.Duration((user + sys) * 1e9)}
		step++
	}
	l.steps[3] = measure(b, w.collect)
	l.steps[4] = measure(b, w.release)
	return l
}

func measure(b *testing.B, step func()) cost {
	b.Helper()
	cpu := func() (d time.Duration) {
		for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
			var u syscall.Rusage
			if err := syscall.Getrusage(who, &u); err != nil {
				b.Fatal(err)
			}
			d += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
		return d
	}
	begin, used := time.Now(), cpu()
	step()
	return cost{time.Since(begin), cpu() - used}
}

func ours(b *testing.B, name string, s *Spaces, ask Request) way {
	var w *Workspace
	return way{
		name: name,
		provision: func(n int) {
			ask.ID = fmt.Sprintf("job.%d", n)
			var err error
			if w, err = s.Prepare(b.Context(), ask); err != nil {
				b.Fatal(err)
			}
		},
		size:  func() (int64, int) { return taken(b, s, w) },
		agent: func(script string) string { return act(b, w, script) },
		collect: func() {
			if c, err := w.Collect(b.Context()); err != nil || c.Files != 10 || c.Commits != 1 {
				b.Fatalf("got %+v, %v", c, err)
			}
		},
		release: func() {
			if err := w.remove(); err != nil {
				b.Fatal(err)
			}
		},
	}
}

// byHand is a way of git's own: add makes a directory, and remove, if it is
// not just removed, takes it away.
func byHand(b *testing.B, name, repo string, add, remove []string) way {
	var dir string
	return way{
		name: name,
		provision: func(int) {
			dir = filepath.Join(b.TempDir(), "files")
			run(b, repo, "git", slices.Concat(add, []string{dir})...)
		},
		size: func() (int64, int) {
			bytes, inodes := size(b, dir)
			if _, err := os.Stat(filepath.Join(repo, ".git/worktrees")); err == nil {
				more, files := size(b, filepath.Join(repo, ".git/worktrees"))
				bytes, inodes = bytes+more, inodes+files
			}
			return bytes, inodes
		},
		agent:   func(script string) string { return run(b, dir, "bash", "-ec", script) },
		collect: func() { run(b, dir, "git", "diff", "--binary", "--full-index", "HEAD^", "HEAD") },
		release: func() {
			if remove != nil {
				run(b, repo, "git", slices.Concat(remove, []string{dir})...)
			}
			if err := os.RemoveAll(dir); err != nil {
				b.Fatal(err)
			}
		},
	}
}
