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
	"strings"
	"time"
)

// A node is one server of a cluster.
type node struct {
	program *program
	name    string
	address string
}

// nodeConfig is a server's configuration file. Clients do not learn the other servers'
// addresses: workers reach them through proxies only.
const nodeConfig = `server_name: %[1]s
listen: "%[2]s"
jetstream { store_dir: "%[3]s", sync_interval: always }
cluster { name: chaos, listen: "%[4]s", routes: [%[5]s], no_advertise: true }
authorization { user: chaos, password: "%[6]s" }
`

// beginCluster starts the servers of a cluster, and a dispatcher of its own.
func (f *target) beginCluster(ctx context.Context, o Options, settings []string, said io.Writer) error {
	password := rand.Text()
	f.user = "chaos:" + password
	var routes []string
	for range o.Cluster {
		route, err := freeAddress()
		if err != nil {
			return err
		}
		routes = append(routes, route)
	}
	for i, route := range routes {
		address, err := freeAddress()
		if err != nil {
			return err
		}
		name := fmt.Sprintf("n%d", i+1)
		file := filepath.Join(o.Dir, name+".conf")
		text := fmt.Sprintf(nodeConfig, name, address, filepath.Join(o.Dir, name), route, `"nats://`+strings.Join(routes, `", "nats://`)+`"`, password)
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
	f.broker = &program{path: o.Program, said: said, env: env, args: []string{"serve", "--admin", ""}}
	f.broker.up()
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

// killLeader kills a server that leads some stream, every other time together with the
// dispatcher, and restarts what it killed.
func (f *target) killLeader(ctx context.Context) {
	ask, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	name, err := f.leader(ask)
	at := slices.IndexFunc(f.nodes, func(n *node) bool { return n.name == name })
	if err != nil || at < 0 { // no stream has a leader now
		at = mathrand.IntN(len(f.nodes))
	}
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
