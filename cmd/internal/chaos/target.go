package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/flaky"
	"github.com/penstock-run/penstock/jobs/freeport"
)

// A target is the pool that chaos breaks.
type target struct {
	data, repo string
	lease      time.Duration
	broker     *program // the dispatcher, and the broker in it, unless there is a cluster
	nodes      []*node  // of the cluster
	network    *network // between them; nil without a cluster
	leader     func(ctx context.Context) (string, error)
	workers    []*program
	proxies    []*proxy   // of each worker
	addresses  []string   // where workers reach the broker, or the nodes
	user       string     // and its password, as in a URL
	disk       *smallDisk // nil unless it is to be filled
	said       io.Writer  // the programs' output, and when faults hit them
}

// note writes a fault into the programs' log.
func (f *target) note(format string, args ...any) {
	fmt.Fprintf(f.said, "time=%s chaos: %s\n", time.Now().Format("2006-01-02T15:04:05.000Z07:00"), fmt.Sprintf(format, args...))
}

// A program is penstock in one of its parts. A fault in it holds mu.
type program struct {
	mu    sync.Mutex
	path  string
	other string // of another release, which is started in its place; empty for none
	args  []string
	env   []string
	said  io.Writer
	cmd   *exec.Cmd     // nil if it could not be started
	ended chan struct{} // closed when the process has ended

	timed bool          // it has a clock of its own
	clock *wallClock    // nil where it has none
	moved time.Duration // by which its clock is wrong, also when it starts again
}

// A proxy is a worker's connections to the broker, or to all nodes of a cluster.
type proxy struct {
	mu   sync.Mutex
	ways []*flaky.Proxy
}

func (p *proxy) all(do func(*flaky.Proxy)) {
	for _, way := range p.ways {
		do(way)
	}
}

// urls returns the addresses for clients. Only the environment has them, so other users
// cannot read the password.
func (p *proxy) urls(user string) string {
	var urls []string
	for _, way := range p.ways {
		urls = append(urls, strings.Replace(way.URL(), "nats://", "nats://"+user+"@", 1))
	}
	return strings.Join(urls, ",")
}

// begin starts the broker and the workers.
func begin(ctx context.Context, o Options) (_ *target, err error) {
	said := &lockedWriter{w: o.Log}
	f := &target{data: filepath.Join(o.Dir, "data"), repo: filepath.Join(o.Dir, "repo"), lease: o.Lease, said: said}
	defer func() {
		if err != nil {
			f.kill()
		}
	}()
	if err := makeRepository(ctx, f.repo); err != nil {
		return nil, err
	}
	if slices.Contains(o.Kinds, fullDisk) {
		if f.disk, err = newDisk(filepath.Join(f.data, "nats"), o.Jobs); err != nil {
			return nil, err
		}
	}
	settings := append(os.Environ(), "PENSTOCK_DATA="+f.data, "PENSTOCK_LEASE="+o.Lease.String())
	if o.Cluster > 0 {
		settings = append(settings, fmt.Sprintf("PENSTOCK_REPLICAS=%d", o.Cluster))
		err = f.beginCluster(ctx, o, settings, said)
	} else {
		err = f.beginBroker(ctx, o, settings, said)
	}
	if err != nil {
		return nil, err
	}
	for n := range o.Workers {
		p := &proxy{}
		f.proxies = append(f.proxies, p)
		for _, address := range f.addresses {
			way, err := flaky.Listen(address)
			if err != nil {
				return nil, fmt.Errorf("open a proxy: %w", err)
			}
			p.ways = append(p.ways, way)
		}
		w := &program{said: said, timed: timed(o), env: append(settings[:len(settings):len(settings)], "PENSTOCK_SERVER="+p.urls(f.user))}
		w.args = []string{
			"worker", "--name", fmt.Sprintf("chaos-%d", n+1), "--slots", fmt.Sprint(o.Slots),
			"--admin", "", "--drain", (10 * time.Second).String(),
		}
		f.workers = append(f.workers, w)
		w.begin(o, n%2 == 0)
	}
	return f, nil
}

// beginBroker starts a dispatcher with the broker inside.
func (f *target) beginBroker(ctx context.Context, o Options, settings []string, said io.Writer) error {
	address, err := freeport.Address()
	if err != nil {
		return err
	}
	f.broker = &program{said: said, timed: timed(o), env: settings, args: []string{"serve", "--listen", address, "--admin", ""}}
	f.broker.begin(o, true)
	endpoint, err := f.serving(ctx)
	f.addresses, f.user = []string{address}, endpoint.User+":"+endpoint.Password
	return err
}

// timed reports whether programs need clocks that can be moved.
func timed(o Options) bool { return slices.Contains(o.Kinds, clockJump) }

// spec is a job whose agent writes a line now and then, and a file at last.
func (f *target) spec(j *job, seed uint64) jobs.Job {
	script := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do i=$((i+1)); echo "tick $i"; sleep 0.1; done; echo "job %d" >>done.txt`, j.ticks, j.n)
	return jobs.Job{
		Item: fmt.Sprint(j.n), Key: fmt.Sprintf("chaos-%d-%d", seed, j.n), Repo: jobs.Repo{URL: f.repo},
		Agent: jobs.Agent{Name: "command", Command: []string{"sh", "-c", script}},
	}
}

// serving waits until the broker accepts connections.
func (f *target) serving(ctx context.Context) (endpoint natsd.Endpoint, err error) {
	err = patiently(ctx, func(context.Context) (err error) {
		endpoint, err = natsd.Find(filepath.Join(f.data, "nats"))
		return err
	})
	if err != nil {
		return endpoint, fmt.Errorf("the broker did not start: %w", err)
	}
	return endpoint, nil
}

// supervise restarts programs that ended by themselves, until ctx ends, as a service
// manager does: a worker that finds no broker when it starts reports that and ends, and
// so does a broker that cannot write.
func (f *target) supervise(ctx context.Context) {
	for ctx.Err() == nil {
		f.revive()
		f.wait(ctx, 0.05, 0.05)
	}
}

func (f *target) revive() {
	for _, w := range append([]*program{f.broker}, f.workers...) {
		if !w.mu.TryLock() {
			continue // a fault is under way
		}
		w.revive()
		w.mu.Unlock()
	}
}

func (p *program) revive() {
	select {
	case <-p.ended:
		p.up()
	default:
	}
}

// drain stops everything but the broker as an operator would.
func (f *target) drain() error {
	var errs []error
	for _, w := range f.workers {
		w.signal(syscall.SIGTERM)
	}
	for _, w := range f.workers {
		if err := w.awaitEnd(time.Minute); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", strings.Join(w.args[:3], " "), err))
		}
	}
	return errors.Join(errs...)
}

// kill ends everything at once.
func (f *target) kill() {
	for _, p := range append([]*program{f.broker}, f.workers...) {
		if p != nil {
			p.kill()
		}
	}
	for _, n := range f.nodes {
		n.program.kill()
	}
	f.network.close()
	for _, p := range f.proxies {
		p.all((*flaky.Proxy).Close)
	}
	if err := f.disk.close(); err != nil {
		fmt.Fprintf(f.broker.said, "the small disk stays mounted: %v\n", err)
	}
	f.disk = nil
}

// begin starts the program, with the previous release first if there is one and that is
// wanted.
func (p *program) begin(o Options, previous bool) {
	p.path, p.other = o.Program, o.Previous
	if previous && o.Previous != "" {
		p.path, p.other = p.other, p.path
	}
	p.up()
}

// up starts the program. A failure counts as a kill: jobs will show it.
func (p *program) up() {
	p.cmd = exec.Command(p.path, p.args...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = p.env, p.said, p.said, apart()
	p.ended = make(chan struct{})
	if err := p.start(); err != nil {
		fmt.Fprintf(p.said, "%s %v: %v\n", p.path, p.args, err)
		p.cmd = nil
		close(p.ended) // a later fault may try again
		return
	}
	go func(cmd *exec.Cmd, ended chan<- struct{}) {
		defer close(ended)
		_ = cmd.Wait() // with any exit code: it may have been starting
	}(p.cmd, p.ended)
}

func (p *program) start() (err error) {
	if !p.timed {
		return p.cmd.Start()
	}
	if p.clock != nil {
		p.clock.close()
	}
	if p.clock, err = startTimed(p.cmd); err == nil {
		p.moveClock(p.moved)
	}
	return err
}

// moveClock makes the program's wall clock wrong by an offset.
func (p *program) moveClock(by time.Duration) {
	p.moved = by
	if p.clock != nil {
		_ = p.clock.move(by) // fails after the process has ended; the next start uses the offset
	}
}

// awaitServing waits until the broker accepts connections, or has ended.
func (p *program) awaitServing(ctx context.Context, f *target) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func(ended <-chan struct{}) {
		select {
		case <-ended:
			cancel(errors.New("it has ended"))
		case <-ctx.Done():
		}
	}(p.ended)
	_, err := f.serving(ctx)
	return cmp.Or(context.Cause(ctx), err)
}

func (p *program) signal(s syscall.Signal) {
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(s) // fails after it has ended
	}
}

func (p *program) kill() {
	if p.cmd == nil {
		return
	}
	p.signal(syscall.SIGKILL)
	<-p.ended
	p.cmd = nil
}

func (p *program) awaitEnd(limit time.Duration) error {
	select {
	case <-p.ended:
		p.cmd = nil
		return nil
	case <-time.After(limit):
		p.kill()
		return fmt.Errorf("it had not ended %v after SIGTERM", limit)
	}
}

func makeRepository(ctx context.Context, dir string) error {
	for _, args := range [][]string{
		{"init", "-q", dir},
		{"-C", dir, "-c", "user.name=chaos", "-c", "user.email=chaos@example.com", "commit", "-q", "--allow-empty", "-m", "base"},
	} {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("make a repository: git %s: %w: %s", args[0], err, out)
		}
	}
	return nil
}

// lockedWriter is a writer for several programs.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}
