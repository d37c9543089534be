package httpapi_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
)

// Each operation of the table has a route, and each route asks for an operation of the
// table or for none.
func TestEveryOperationHasARoute(t *testing.T) {
	t.Parallel()
	var named []string
	seen := map[string]bool{}
	for _, route := range httpapi.Routes() {
		named = append(named, route.Row.Name)
		place := route.Method + " " + route.Path
		if seen[place] || route.Sentence() == "" || len(route.Roles()) == 0 {
			t.Errorf("%s stands twice, says nothing, or is for no role: %+v", place, route)
		}
		seen[place] = true
	}
	for _, row := range operation.All() {
		if !slices.Contains(named, row.Name) {
			t.Errorf("operation %s has no route", row.Name)
		}
	}
}

// withRoles makes a pool on a broker that knows roles, and a client of each.
func withRoles(t *testing.T) (*pool, map[jobs.Role]*client.Client) {
	t.Helper()
	dir, files := t.TempDir(), t.TempDir()
	server, err := natsd.Open(natsd.Config{StoreDir: dir, Listen: "127.0.0.1:0", Owner: "serve", Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	conns := map[jobs.Role]*nats.Conn{}
	for _, role := range jobs.Roles {
		credential, secret, err := natsd.NewCredential(role, string(role))
		if err == nil {
			err = natsd.Admit(dir, credential)
		}
		file := filepath.Join(files, string(role))
		if err == nil {
			err = os.WriteFile(file, secret, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, options, err := natsd.Present(file)
		if err != nil {
			t.Fatal(err)
		}
		if conns[role], err = nats.Connect(server.Endpoint().URL, append(options, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conns[role].Close)
	}
	p := dispatch(t, conns[jobs.RoleOperator], jobs.RoleOperator)
	p.url = p.serve(p.config())
	clients := map[jobs.Role]*client.Client{}
	for role, nc := range conns {
		if role == jobs.RoleWorker {
			continue // which is no client
		}
		if clients[role], err = client.Open(jobstest.Context(t), nc, client.Config{Role: role}); err != nil {
			t.Fatal(err)
		}
	}
	return p, clients
}

// Each operation is allowed to the roles that the table names and refused to all others,
// by a client on the bus, a client over HTTP, and a plain request over HTTP. What is
// allowed gets as far as its dispatcher, which finds nothing of that name.
func TestEveryRoleAndOperation(t *testing.T) {
	t.Parallel()
	p, clients := withRoles(t)
	web := map[jobs.Role]*client.Client{}
	for _, role := range append([]jobs.Role{jobs.RoleAutoscale}, jobs.Roles...) {
		web[role] = dial(t, p.url, role)
	}
	var g errgroup.Group
	g.SetLimit(8)
	for _, row := range operation.All() {
		for _, role := range append([]jobs.Role{jobs.RoleAutoscale}, jobs.Roles...) {
			g.Go(func() error { return p.eachWay(clients[role], web[role], row, role) })
		}
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

// eachWay asks for an operation with a role in each way.
func (p *pool) eachWay(bus, web *client.Client, row operation.Row, role jobs.Role) error {
	allowed := row.Allows(role)
	for way, c := range map[string]*client.Client{"on the bus": bus, "over HTTP": web} {
		if c == nil {
			continue // neither a worker nor autoscale is a client on the bus
		}
		_, err := client.Call(p.t.Context(), c, row, []byte(`{"id":"nothing","name":"nothing"}`))
		if code := jobs.Code(err); (code == jobs.CodeForbidden) == allowed || code == jobs.CodeInternal || code == jobs.CodeUnavailable {
			return fmt.Errorf("%s, asked %s by %s: %w (%s)", row.Name, way, role, err, code)
		}
		if c.May(row) != allowed {
			return fmt.Errorf("%s: the client of %s %s says that it may: %t", row.Name, role, way, c.May(row))
		}
	}
	for _, route := range httpapi.Routes() {
		if route.Row.Name != row.Name {
			continue
		}
		path := strings.NewReplacer("{id}", "nothing", "{name}", "nothing", "{batch}", "nothing", "{name...}", "nothing").Replace(route.Path)
		body := ""
		if route.Method == http.MethodPost || route.Method == http.MethodPut {
			body = "{}"
		}
		got := p.ask(role, route.Method+" "+path, body)
		if (got.status == http.StatusForbidden) == allowed || got.status >= 500 || got.status == http.StatusUnauthorized || got.status == http.StatusMethodNotAllowed {
			return fmt.Errorf("%s %s by %s: got %d %s", route.Method, path, role, got.status, got.body)
		}
		if !allowed && !strings.Contains(got.body, "role "+string(role)) {
			return fmt.Errorf("%s %s by %s does not name the role: %s", route.Method, path, role, got.body)
		}
		if slices.Contains(route.Roles(), role) != allowed {
			return fmt.Errorf("%s %s lists roles %v", route.Method, path, route.Roles())
		}
	}
	return nil
}

// Without a credential, or with one that has no role, nothing is answered: not even
// whether a path exists.
func TestNoCredential(t *testing.T) {
	t.Parallel()
	p := open(t)
	for _, role := range []jobs.Role{"", "wrong"} {
		for _, request := range []string{"GET /v1/jobs", "GET /nowhere", "GET /", "DELETE /v1/jobs", "GET /v1/version", "GET /v1//jobs"} {
			got := p.ask(role, request, "")
			if code := got.problem(t).Code; got.status != http.StatusUnauthorized || code != "unauthenticated" || got.header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s as %q: %d %s", request, role, got.status, got.body)
			}
		}
	}
	if got := p.ask("roleless", "GET /v1/version", ""); got.status != http.StatusForbidden {
		t.Errorf("a credential without a role: %d %s", got.status, got.body)
	}
	bare := p.config()
	bare.Authenticate = nil
	p.url = p.serve(bare)
	if got := p.ask(jobs.RoleOperator, "GET /v1/version", ""); got.status != http.StatusUnauthorized {
		t.Errorf("a server that cannot tell who asks: %d %s", got.status, got.body)
	}
}
