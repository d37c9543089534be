package jobstest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// A Cluster is three servers in processes of their own that keep streams
// together.
type Cluster struct {
	tb    testing.TB
	nodes []*ChildServer
}

// clusterText configures the cluster of a server in a child process.
type clusterText struct {
	Name   string
	Port   int   // for the other servers
	Others []int // their ports
}

// StartCluster starts three servers, which end with the test. Like Child, it
// needs a TestMain that knows [IsChild].
func StartCluster(tb testing.TB) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb}
	var ports []int
	for range 3 {
		ports = append(ports, FreePort(tb))
	}
	for i, port := range ports {
		text, err := json.Marshal(clusterText{fmt.Sprintf("n%d", i+1), port, ports})
		if err != nil {
			tb.Fatal(err)
		}
		node := &ChildServer{tb: tb, dir: tb.TempDir(), port: FreePort(tb), cluster: string(text)}
		node.Up()
		tb.Cleanup(node.Kill)
		c.nodes = append(c.nodes, node)
	}
	return c
}

// URL names all servers.
func (c *Cluster) URL() string {
	var urls []string
	for _, node := range c.nodes {
		urls = append(urls, node.URL())
	}
	return strings.Join(urls, ",")
}

// Node returns a server by its name, as the brokers' answers give it.
func (c *Cluster) Node(name string) *ChildServer {
	c.tb.Helper()
	for i, node := range c.nodes {
		if name == fmt.Sprintf("n%d", i+1) {
			return node
		}
	}
	c.tb.Fatalf("there is no server %q", name)
	return nil
}

// join sets what a server needs to be one of a cluster.
func join(opts *server.Options) {
	text := os.Getenv(childDir + "_CLUSTER")
	if text == "" {
		return
	}
	var settings clusterText
	if err := json.Unmarshal([]byte(text), &settings); err != nil {
		panic(err)
	}
	opts.ServerName = settings.Name
	opts.Cluster = server.ClusterOpts{Name: "jobstest", Host: "127.0.0.1", Port: settings.Port}
	for _, port := range settings.Others {
		opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}
}
