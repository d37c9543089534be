package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// most is how many jobs the largest batch of a window has.
const most = 12

// agent is what jobs do: most change a file, some fail, some print much.
const agent = `case $((0x$(echo "$PENSTOCK_PROMPT" | cksum | cut -c1-6) % 10)) in
0) exit 1 ;;
1) i=0; while [ $i -lt 1000 ]; do i=$((i+1)); echo "line $i of much output"; done ;;
2) head -c 300000 /dev/urandom >big.bin ;;
esac
sleep 0.3; echo "$PENSTOCK_PROMPT" >>done.txt`

// soak is one run: it starts the programs, puts load on them, hurts them, and ends them.
func (p *pool) soak(ctx context.Context, s *samples, n int) error {
	if err := p.up(ctx); err != nil {
		return err
	}
	if n == 0 {
		for _, args := range [][]string{
			{"webhook", "add", "soak", "--url", p.hooks.URL, "--events", "job.*"},
			{"schedule", "add", "tick", "--every", "15s", "--repo", p.repo, "--", "sh", "-c", "echo tick >>tick.txt"},
		} {
			if _, err := p.ask(ctx, args...); err != nil {
				return err
			}
		}
	}
	within, cancel := context.WithTimeout(ctx, windows*s.window)
	defer cancel()
	var busy sync.WaitGroup
	for _, part := range []func(){func() { s.take(within, n) }, func() { p.waves(within, s.window, n) }, func() { p.hurt(within, s.window) }} {
		busy.Go(part)
	}
	busy.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := p.countFirings(ctx); err != nil {
		return err
	}
	signal := syscall.SIGTERM
	if n == 1 {
		signal = syscall.SIGKILL
	}
	err := p.down(signal)
	if signal == syscall.SIGTERM {
		err = errors.Join(err, p.leftovers())
	}
	return err
}

// countFirings counts the jobs of the schedule that are still kept.
func (p *pool) countFirings(ctx context.Context) error {
	text, err := p.ask(ctx, "job", "ls", "-o", "jsonl", "--limit", "100000")
	p.fired = int64(strings.Count(text, `"key":"schedule/tick/`))
	return err
}

// leftovers notes what must not be there when all programs have ended.
func (p *pool) leftovers() error {
	spaces, err := filepath.Glob(filepath.Join(p.data, "work", "jobs", "*"))
	if len(spaces) > 0 {
		p.complain(fmt.Errorf("workspaces are left when all has ended: %v", spaces))
	}
	if n := mounts(p.data); n > 0 {
		p.complain(fmt.Errorf("%.0f mounts are left when all has ended", n))
	}
	return err
}

// waves submits one batch after the other, large ones in the middle of a window, and moves
// the repository on before each.
func (p *pool) waves(ctx context.Context, window time.Duration, run int) {
	began := time.Now()
	for n := 0; ctx.Err() == nil; n++ {
		phase := float64(time.Since(began)%window) / float64(window)
		size := 1 + int(most*math.Pow(math.Sin(math.Pi*phase), 2))
		// Out of time is no error; a batch that has begun is waited for.
		if err := errors.Join(p.commit(context.WithoutCancel(ctx), n), p.batch(context.WithoutCancel(ctx), fmt.Sprintf("r%d-b%d", run, n), size)); err != nil {
			p.complain(err)
			return
		}
	}
}

// batch runs a batch and counts its results. That some of its jobs fail is wanted.
func (p *pool) batch(ctx context.Context, name string, size int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	items, out := filepath.Join(p.dir, name+".jsonl"), filepath.Join(p.dir, name)
	var lines strings.Builder
	for i := range size {
		fmt.Fprintf(&lines, "{\"item\":\"%s-%d\",\"prompt\":\"do %s %d\"}\n", name, i, name, i)
	}
	if err := os.WriteFile(items, []byte(lines.String()), 0o644); err != nil {
		return err
	}
	_, err := p.ask(ctx, "batch", "run", items, "--out", out, "--repo", p.repo, "--progress", "quiet", "--", "sh", "-c", agent)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 3 {
		err = nil
	}
	if err != nil {
		return err
	}
	results, err := os.ReadFile(filepath.Join(out, "results.jsonl"))
	if err != nil {
		return err
	}
	p.jobs.Add(int64(size))
	ends := 0
	for line := range strings.Lines(string(results)) {
		var r struct{ Outcome string }
		if json.Unmarshal([]byte(line), &r) == nil && (r.Outcome == "success" || r.Outcome == "failure") {
			ends++
		}
	}
	p.lost.Add(int64(size - ends))
	return errors.Join(os.RemoveAll(out), os.Remove(items))
}

// hurt kills one of the workers, or stops it past its lease, in each window.
func (p *pool) hurt(ctx context.Context, window time.Duration) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(window/2 + time.Duration(rand.Float64()*float64(window)/2)):
		}
		p.faults.Add(1)
		if rand.IntN(2) == 0 {
			p.victim.Signal(syscall.SIGSTOP)
			time.Sleep(8 * time.Second) // its lease is five
			p.victim.Signal(syscall.SIGCONT)
			continue
		}
		_ = p.victim.End(syscall.SIGKILL, time.Minute)
		next, err := p.worker(ctx, "victim")
		if p.victim = next; err != nil && ctx.Err() == nil {
			p.complain(err)
			return
		}
	}
}
