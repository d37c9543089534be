package chaos

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/jobs/flaky"
)

// A kind is one kind of fault: in a worker, by its number, in its connection, or in the
// broker. The target is locked meanwhile. The function causes the fault, waits, and
// then repairs what an operator would.
type kind struct {
	name   string
	weight int
	victim func(f *target, n int) *sync.Mutex
	do     func(ctx context.Context, f *target, n int)
}

var kinds = []kind{
	{"kill worker", 25, worker, killWorker},
	{"stop worker", 20, worker, stopWorker},
	{"cut connection", 25, connection, cutConnection},
	{"mute connection", 20, connection, dropAnswers},
	{"kill broker", 10, broker, killBroker},
	{fullDisk, 5, disk, fillDisk},
	{clockJump, 10, clock, moveClock},
	{cutServers, 15, servers, partPair},
	{isolateServer, 10, servers, partLeader},
	{changeRelease, 20, exchanged, exchange},
}

// Faults that are not possible on every host, those that only a cluster can have, and the one that
// needs two releases.
const (
	fullDisk      = "full disk"
	clockJump     = "clock jump"
	cutServers    = "cut servers"
	isolateServer = "isolate server"
	changeRelease = "change release"
)

func worker(f *target, n int) *sync.Mutex     { return &f.workers[n].mu }
func connection(f *target, n int) *sync.Mutex { return &f.proxies[n].mu }
func broker(f *target, _ int) *sync.Mutex     { return &f.broker.mu }
func disk(f *target, _ int) *sync.Mutex       { return &f.disk.mu }
func servers(f *target, _ int) *sync.Mutex    { return &f.network.mu }
func exchanged(f *target, n int) *sync.Mutex  { return &f.timed(n).mu }
func clock(f *target, n int) *sync.Mutex      { return &f.timed(n).mu }

// Kinds lists all faults, which are the default.
func Kinds() []string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// strike begins a fault, and returns its kind. A target has only one fault at a time.
func (r *run) strike(ctx context.Context, random *rand.Rand) string {
	for {
		k, n := r.draw(random)
		if victim := k.victim(r.target, n); victim.TryLock() {
			r.harm.Go(func() {
				defer victim.Unlock()
				r.target.note("%s %d begins", k.name, n+1)
				k.do(ctx, r.target, n)
				r.target.note("%s %d is over", k.name, n+1)
			})
			return k.name
		}
		time.Sleep(r.Lease / 100)
	}
}

// draw draws a fault and a worker.
func (r *run) draw(random *rand.Rand) (kind, int) {
	wanted := slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool { return !slices.Contains(r.Kinds, k.name) })
	sum := 0
	for _, k := range wanted {
		sum += k.weight
	}
	at, i := random.IntN(sum), 0
	for at >= wanted[i].weight {
		at -= wanted[i].weight
		i++
	}
	return wanted[i], random.IntN(r.Workers)
}

// killWorker kills a worker as kill -9 does, and starts another in its place.
func killWorker(ctx context.Context, f *target, n int) {
	w := f.workers[n]
	w.kill()
	f.wait(ctx, 0, 0.5)
	w.up()
}

// stopWorker stops a worker past its lease: when it continues, it believes that no time
// has passed.
func stopWorker(ctx context.Context, f *target, n int) {
	w := f.workers[n]
	w.signal(syscall.SIGSTOP)
	f.wait(ctx, 1.5, 5)
	w.signal(syscall.SIGCONT)
}

// cutConnection breaks a worker's connections and refuses new ones.
func cutConnection(ctx context.Context, f *target, n int) {
	p := f.proxies[n]
	p.all((*flaky.Proxy).Cut)
	f.wait(ctx, 0, 1.5)
	p.all((*flaky.Proxy).Heal)
}

// dropAnswers lets a worker's requests through, and drops their answers.
func dropAnswers(ctx context.Context, f *target, n int) {
	p := f.proxies[n]
	p.all((*flaky.Proxy).Blackhole)
	f.wait(ctx, 0, 1.5)
	p.all((*flaky.Proxy).Heal)
}

// killBroker kills the broker with its dispatcher, and restarts it. In a cluster it
// kills a server that leads some stream.
func killBroker(ctx context.Context, f *target, _ int) {
	if len(f.nodes) > 0 {
		f.killLeader(ctx)
		return
	}
	f.broker.kill()
	f.wait(ctx, 0, 0.5)
	// If the broker does not return, no job can continue. On a full disk it does not
	// start.
	_ = patiently(ctx, func(ctx context.Context) error {
		f.broker.revive()
		return f.broker.awaitServing(ctx, f)
	})
}

// partPair interrupts the connections between two servers of the cluster, which both still
// reach the third one.
func partPair(ctx context.Context, f *target, _ int) {
	a := rand.IntN(len(f.nodes))
	b := (a + 1 + rand.IntN(len(f.nodes)-1)) % len(f.nodes)
	f.part(ctx, f.network.between(a, b))
}

// partLeader interrupts the connections of a server that leads some stream with all
// others. Its clients stay connected to it.
func partLeader(ctx context.Context, f *target, _ int) {
	f.part(ctx, f.network.between(f.leading(ctx), -1))
}

// exchange ends a worker, or the dispatcher, as an operator does, and starts the other
// release in its place.
func exchange(_ context.Context, f *target, n int) {
	p := f.timed(n)
	p.signal(syscall.SIGTERM)
	if err := p.awaitEnd(time.Minute); err != nil {
		f.note("%s %v: %v", p.path, p.args[:1], err)
	}
	p.path, p.other = p.other, p.path
	p.up()
}

// fillDisk fills the broker's disk to the last byte, and frees it again.
func fillDisk(ctx context.Context, f *target, _ int) {
	f.disk.fill()
	f.wait(ctx, 0.5, 2)
	f.disk.free()
}

// moveClock moves the clock of a worker, or of the broker, forwards or backwards by up
// to two minutes, and later sets it right.
func moveClock(ctx context.Context, f *target, n int) {
	p := f.timed(n)
	p.moveClock(time.Duration((rand.Float64()*2 - 1) * float64(2*time.Minute)))
	f.wait(ctx, 0.5, 3)
	p.moveClock(0)
}

// timed is the program whose clock a fault moves: a worker, or, for the first of them,
// the broker.
func (f *target) timed(n int) *program {
	if n == 0 {
		return f.broker
	}
	return f.workers[n]
}

// wait waits between from and to leases.
func (f *target) wait(ctx context.Context, from, to float64) {
	leases := from + rand.Float64()*(to-from)
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(leases * float64(f.lease))):
	}
}
