package sandbox_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
)

// A growth is what a program lets its directories grow by.
type growth struct {
	name   string
	limits sandbox.Limits
	script string
	want   sandbox.Feature // "": the limit is not reached
}

// A jail that grows beyond the limit is killed, and the exit says for what; one
// that stays below it, or gives back what it took, is not.
func TestGrowthIsLimited(t *testing.T) {
	disk, inodes := sandbox.Limits{Disk: 8 << 20}, sandbox.Limits{Inodes: 200}
	each(t, func(t *testing.T, with with) {
		var all sync.WaitGroup // they mostly wait
		for _, g := range []growth{
			{"fill the workspace", disk, "while head -c 1m /dev/zero >>f; do sleep 0.01; done", sandbox.FeatureDisk},
			{"fill the home", disk, "while head -c 1m /dev/zero >>$HOME/f; do sleep 0.01; done", sandbox.FeatureDisk},
			{"fill a file that was there", disk, "while head -c 1m /dev/zero >>old; do sleep 0.01; done", sandbox.FeatureDisk},
			{"fill a directory and close it", disk, "mkdir d; head -c 20m /dev/zero >d/f; chmod 0 d; sleep 60", sandbox.FeatureDisk},
			{"fill a deleted file", disk, "exec 5>f; rm f; head -c 20m /dev/zero >&5; sleep 60", sandbox.FeatureDisk},
			{"fill and end", disk, "head -c 20m /dev/zero >f; exit 3", sandbox.FeatureDisk},
			{"use up inodes", inodes, "mkdir d; i=0; while :; do : >d/$((i=i+1)); done", sandbox.FeatureInodes},
			{"links are no inodes", inodes, "mkdir d; : >d/f; i=0; while test $i -lt 400; do ln d/f d/$((i=i+1)); done; sleep 1.5", ""},
			{"a sparse file is small", disk, "truncate -s 1G f; sleep 1.5", ""},
			{"what is deleted counts no more", disk, "for i in 1 2 3 4; do head -c 6m /dev/zero >f; sleep 0.5; rm f; done", ""},
			{"what is outside does not count", disk, "ln -s /usr d; ln -s / e; sleep 1.5", ""},
		} {
			spec := sh(g.script)
			spec.Workspace, spec.Home, spec.Limits = t.TempDir(), t.TempDir(), g.limits
			all.Go(func() { g.run(t, with, spec) })
		}
		all.Wait()
	})
}

func (g growth) run(t *testing.T, with with, spec sandbox.Spec) {
	spec.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + sandbox.HomePath}
	if err := os.WriteFile(filepath.Join(spec.Workspace, "old"), make([]byte, 20<<20), 0o600); err != nil {
		t.Error(err)
	}
	b, spec := with(spec)
	if b.Name() == "none" {
		spec.Env[1] = "HOME=" + spec.Home
	}
	exit, err := sandbox.Run(t.Context(), b, spec, sandbox.Streams{})
	switch {
	case err != nil:
		t.Errorf("%s: %v", g.name, err)
	case g.want == "" && (!exit.Success() || exit.Reached != nil):
		t.Errorf("%s: got %v, want success", g.name, exit)
	case g.want != "" && (exit.Success() || exit.Stopped || !slices.Equal(exit.Reached, []sandbox.Feature{g.want})):
		t.Errorf("%s: got %v, want the limit of %s reached", g.name, exit, g.want)
	}
}

// A jail without directories of the host has its own, which grow too.
func TestGrowthInMemoryIsLimited(t *testing.T) {
	each(t, func(t *testing.T, with with) {
		b, spec := with(sandbox.Spec{Args: []string{"sh", "-c", "head -c 20m /dev/zero >$HOME/f; sleep 60"}, Limits: sandbox.Limits{Disk: 8 << 20}})
		if b.Name() == "none" {
			t.Skip("there is no home in memory")
		}
		exit, err := sandbox.Run(t.Context(), b, spec, sandbox.Streams{})
		if err != nil || !slices.Equal(exit.Reached, []sandbox.Feature{sandbox.FeatureDisk}) {
			t.Errorf("got %v, err %v", exit, err)
		}
	})
}

func TestWhatIsWatchedIsSaid(t *testing.T) {
	each(t, func(t *testing.T, with with) {
		for _, limits := range []sandbox.Limits{{}, {Disk: 1 << 30, OutputRate: 1 << 30}, {Disk: 1 << 30, Inodes: 1000}} {
			spec := sh("true")
			spec.Limits = limits
			b, spec := with(spec)
			p, err := sandbox.Start(t.Context(), b, spec, sandbox.Streams{})
			if err != nil {
				t.Fatal(err)
			}
			watched := p.Watched()
			if exit, err := p.Wait(); err != nil || !exit.Success() {
				t.Errorf("got %v, err %v", exit, err)
			}
			if slices.Contains(watched, sandbox.FeatureDisk) != (limits.Disk > 0) ||
				slices.Contains(watched, sandbox.FeatureInodes) != (limits.Inodes > 0) || slices.Contains(watched, sandbox.FeatureOutput) {
				t.Errorf("%+v: watched are %v", limits, watched)
			}
		}
	})
}

// A directory that cannot be measured has no limit, so there is no jail.
func TestWhatCannotBeMeasuredIsNoJail(t *testing.T) {
	each(t, func(t *testing.T, with with) {
		spec := sh("true")
		spec.Workspace, spec.Limits.Disk = filepath.Join(t.TempDir(), "nothing"), 1<<20
		b, spec := with(spec)
		if p, err := sandbox.Start(t.Context(), b, spec, sandbox.Streams{}); err == nil {
			t.Errorf("a jail was made: %v", p.Watched())
		}
	})
}

// What is written too fast is slowed, and all of it arrives. The rate is one
// that no machine is too busy to exceed.
func TestOutputIsSlowed(t *testing.T) {
	const size, rate = 512 << 10, 128 << 10
	each(t, func(t *testing.T, with with) {
		t.Parallel()
		var out, errs bytes.Buffer
		spec := sh("head -c 262144 /dev/zero & head -c 262144 /dev/zero >&2; wait")
		spec.Limits.OutputRate = rate
		b, spec := with(spec)
		exit, err := sandbox.Run(t.Context(), b, spec, sandbox.Streams{Stdout: &out, Stderr: &errs})
		if err != nil || !exit.Success() || !slices.Equal(exit.Reached, []sandbox.Feature{sandbox.FeatureOutput}) {
			t.Errorf("got %v, err %v, want the limit of output reached", exit, err)
		}
		if out.Len()+errs.Len() != size {
			t.Errorf("%d and %d bytes arrived", out.Len(), errs.Len())
		}
		// A second's worth may come at once. In the end what two pipes hold is
		// free, and so is what two goroutines have taken and wait with.
		const slowed = size - rate - 2*(64<<10) - 2*rate/8
		if least := slowed * time.Second / rate; exit.Ended.Sub(exit.Started) < least {
			t.Errorf("it took %v, less than %v", exit.Ended.Sub(exit.Started), least)
		}
	})
}

// A program that is slowed can be ended, and one that is slow enough gets no
// notice.
func TestSlowedOutputDoesNotHoldTheEnd(t *testing.T) {
	each(t, func(t *testing.T, with with) {
		spec := sh("head -c 1G /dev/zero")
		spec.Limits.OutputRate, spec.Grace = 1000, 10*time.Millisecond
		b, spec := with(spec)
		first := make(chan struct{})
		p, err := sandbox.Start(t.Context(), b, spec, sandbox.Streams{Stdout: &announcer{first: first}})
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-first:
		case <-p.Done():
			t.Fatal("it ended without a word")
		}
		if err := p.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		spec = sh("echo few")
		spec.Limits.OutputRate = 1000
		b, spec = with(spec)
		if exit, err := sandbox.Run(t.Context(), b, spec, sandbox.Streams{}); err != nil || exit.Reached != nil {
			t.Errorf("got %v, err %v", exit, err)
		}
	})
}

type announcer struct{ first chan struct{} }

func (a *announcer) Write(p []byte) (int, error) {
	if a.first != nil {
		close(a.first)
		a.first = nil
	}
	return len(p), nil
}
