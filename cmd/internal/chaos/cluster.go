package chaos

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs/flaky"
	"github.com/penstock-run/penstock/jobs/freeport"
)

// A node is one server of a cluster.
type node struct {
	program *program
	name    string
	address string
}

// nodeConfig is a server's configuration file. Clients do not learn the other servers'
// addresses: workers reach them through proxies only. Nor do servers, which reach each
// other through proxies as well: what one of them would tell the others is an address
// where nothing listens.
const nodeConfig = `server_name: %[1]s
listen: "%[2]s"
jetstream { store_dir: "%[3]s", sync_interval: always }
cluster { name: chaos, listen: "%[4]s", routes: [%[5]s], advertise: "127.0.0.1:1", no_advertise: true }
authorization { user: chaos, password: "%[6]s" }
`

// A network is what connects the servers of a cluster. A fault in it holds mu.
type network struct {
	mu sync.Mutex
	// ways leads from each server to those before it, by their numbers. One of two opens
	// their connection, always the same: if both do, each may refuse the other's as the second
	// one, and only what they tell each other of addresses would bring them together again.
	ways map[[2]int]*flaky.Proxy
}

// newNetwork connects servers, of which the addresses for routes are given.
func newNetwork(routes []string) (*network, error) {
	w := &network{ways: map[[2]int]*flaky.Proxy{}}
	for from := range routes {
		for to, address := range routes[:from] {
			way, err := flaky.Listen(address)
			if err != nil {
				w.close()
				return nil, fmt.Errorf("open a proxy: %w", err)
			}
			w.ways[[2]int{from, to}] = way
		}
	}
	return w, nil
}

// routes lists the servers to which one connects, in the form of its configuration. A
// server of a cluster must have one route; that to itself it finds out and leaves.
func (w *network) routes(from int, own string) string {
	urls := []string{strconv.Quote("nats://" + own)}
	for ends, way := range w.ways {
		if ends[0] == from {
			urls = append(urls, strconv.Quote(way.URL()))
		}
	}
	return strings.Join(urls, ", ")
}

// between returns the way between two servers, or all ways of the first one if the second is
// negative.
func (w *network) between(a, b int) []*flaky.Proxy {
	var ways []*flaky.Proxy
	for ends, way := range w.ways {
		if ends == [2]int{max(a, b), min(a, b)} || b < 0 && slices.Contains(ends[:], a) {
			ways = append(ways, way)
		}
	}
	return ways
}

func (w *network) close() {
	if w == nil {
		return
	}
	for _, way := range w.ways {
		way.Close()
	}
}

// beginCluster starts the servers of a cluster, and a dispatcher of its own.
func (f *target) beginCluster(ctx context.Context, o Options, settings []string, said io.Writer) error {
	password := rand.Text()
	f.user = "chaos:" + password
	var routes []string
	for range o.Cluster {
		route, err := freeport.Address()
		if err != nil {
			return err
		}
		routes = append(routes, route)
	}
	var err error
	if f.network, err = newNetwork(routes); err != nil {
		return err
	}
	for i, route := range routes {
		address, err := freeport.Address()
		if err != nil {
			return err
		}
		name := fmt.Sprintf("n%d", i+1)
		file := filepath.Join(o.Dir, name+".conf")
		text := fmt.Sprintf(nodeConfig, name, address, filepath.Join(o.Dir, name), route, f.network.routes(i, route), password)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
		n := &node{&program{path: o.Program, said: said, env: settings, args: []string{"nats", "server", file}}, name, address}
		f.nodes, f.addresses = append(f.nodes, n), append(f.addresses, address)
		n.program.up()
	}
	for _, n := range f.nodes {
		if err := patiently(ctx, n.listens); err != nil {
			return fmt.Errorf("server %s did not start: %w", n.name, err)
		}
	}
	env := append(settings[:len(settings):len(settings)], "PENSTOCK_SERVER="+f.servers())
	f.broker = &program{said: said, env: env, args: []string{"serve", "--admin", ""}}
	f.broker.begin(o, true)
	return nil
}

// servers lists the servers of the cluster; nothing without a cluster.
func (f *target) servers() string {
	var urls []string
	for _, n := range f.nodes {
		urls = append(urls, "nats://"+f.user+"@"+n.address)
	}
	return strings.Join(urls, ",")
}

func (n *node) listens(ctx context.Context) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", n.address)
	if err != nil {
		return err
	}
	return c.Close()
}

// leading returns the number of a server that leads some stream, or of any while none
// does.
func (f *target) leading(ctx context.Context) int {
	ask, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	name, err := f.leader(ask)
	at := slices.IndexFunc(f.nodes, func(n *node) bool { return n.name == name })
	if err != nil || at < 0 {
		return mathrand.IntN(len(f.nodes))
	}
	return at
}

// part interrupts ways between servers for a while: either nothing passes, and both ends
// notice, or what one end sends is lost, and it may take long to notice. Clients of the
// servers stay connected.
func (f *target) part(ctx context.Context, ways []*flaky.Proxy) {
	interrupt := (*flaky.Proxy).Cut
	if mathrand.IntN(2) == 0 {
		interrupt = (*flaky.Proxy).Blackhole
	}
	for _, way := range ways {
		interrupt(way)
	}
	f.wait(ctx, 0.1, 1.2)
	for _, way := range ways {
		way.Heal()
	}
}

// killLeader kills a server that leads some stream, every other time together with the
// dispatcher, and restarts what it killed.
func (f *target) killLeader(ctx context.Context) {
	at := f.leading(ctx)
	both := mathrand.IntN(2) == 0
	f.nodes[at].program.kill()
	if both {
		f.broker.kill()
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(mathrand.Float64() * float64(min(f.lease/2, 2*time.Second)))):
	}
	f.nodes[at].program.up()
	if both {
		f.broker.up()
	}
	_ = patiently(ctx, f.nodes[at].listens) // if the server does not return, jobs will fail
}
