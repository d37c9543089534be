package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
)

// publish.mjs is the client of a user of Node who knows nothing of this program but its
// documentation.
const publisher = `
import { connect } from "@nats-io/transport-node";
const nc = await connect({ servers: process.env.URL, user: process.env.NATS_USER, pass: process.env.PASSWORD });
const [verb, text] = process.argv.slice(2);
if (verb === "request") {
  const answer = await nc.request("penstock.v1.api.submit", text, { timeout: 5000 });
  console.log(answer.string());
} else {
  const ack = await nc.request("penstock.v1.submit.default", text, { timeout: 5000 });
  console.log(ack.string());
}
await nc.close();
`

// A client in another language publishes one JSON message and has a job. One
// that is malformed is refused with the field named, or filed with it.
func TestAClientInAnotherLanguage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	modules := nodeModules(t)
	f.serve("--slots", "2")
	endpoint, err := natsd.Find(filepath.Join(f.data, "nats"))
	f.must(err)
	script := filepath.Join(modules, "publish-"+jobs.NewID()+".mjs")
	f.must(os.WriteFile(script, []byte(publisher), 0o644))
	t.Cleanup(func() { _ = os.Remove(script) })
	call := func(verb, text string) string {
		t.Helper()
		cmd := exec.Command("node", script, verb, text)
		cmd.Env = append(os.Environ(), "URL="+endpoint.URL, "NATS_USER="+endpoint.User, "PASSWORD="+endpoint.Password)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("node: %v\n%s", err, out)
		}
		return string(out)
	}

	good, err := json.Marshal(map[string]any{
		"repo": map[string]string{"url": f.repo}, "agent": map[string]any{"name": "command", "command": []string{"sh", "-c", "echo hi > new.txt"}},
	})
	f.must(err)
	var answer struct{ ID, Session string }
	f.must(json.Unmarshal([]byte(call("request", string(good))), &answer))
	f.run("wait", "--timeout", patience(30), answer.ID)

	if ack := call("publish", string(good)); !strings.Contains(ack, `"stream":"PS_INTAKE"`) {
		t.Errorf("a plain publish was acknowledged with %s", ack)
	}
	f.eventually(20*time.Second, "the published job has run", func() bool {
		return strings.Count(f.run("job", "ls", "-o", "jsonl", "--state", "finished"), `"outcome":"success"`) == 2
	})

	for _, bad := range []struct{ job, field string }{
		{`{"prompt":"x"`, "(job)"},
		{`{"prompt":"x","repo":{"url":"/r"},"agent":{"name":"claude","max_turns":"ten"}}`, "agent.max_turns"},
		{`{"prompt":"x","repo":{"url":"/r"},"agent":{"name":"claude"},"colour":"red"}`, "colour"},
	} {
		if got := call("request", bad.job); !strings.Contains(got, `"code":"invalid"`) || !strings.Contains(got, `"field":"`+bad.field+`"`) {
			t.Errorf("%s: refused with %s, want the field %s named", bad.job, got, bad.field)
		}
		call("publish", bad.job)
		f.eventually(60*time.Second, "the reject is filed with "+bad.field, func() bool {
			return strings.Contains(f.run("dead", "ls", "-o", "jsonl"), bad.field)
		})
	}
}

// A viewer follows a session with the program of the documentation, which has a
// viewer's credential and the client library alone: from the first event to the last,
// while they come.
func TestAViewerFollowsInAnotherLanguage(t *testing.T) {
	t.Parallel()
	program := documented(t, "clients-nats.md", "js", "jetstreamManager")
	f := newFixture(t)
	modules := nodeModules(t)
	if _, err := os.Stat(filepath.Join(modules, "node_modules", "@nats-io", "jetstream")); err != nil {
		skip(t, "node", "no JetStream client for Node: npm install @nats-io/jetstream beside @nats-io/transport-node")
	}
	f.serve("--slots", "1")
	id := f.submit("for i in 1 2 3 4 5 6; do echo line $i; sleep 0.3; done")
	got := f.execute("node", filepath.Join(modules, "follow-"+jobs.NewID()+".mjs"), program, jobs.RoleViewer, id)
	var want strings.Builder
	for _, e := range f.events(id) {
		fmt.Fprintln(&want, e.Seq, e.Kind)
		if e.Kind == jobs.JobFinished {
			break
		}
	}
	if got != want.String() {
		t.Errorf("the viewer has seen\n%s\nwant\n%s", got, want.String())
	}
}

// nodeModules returns the directory in which Node finds its NATS client.
func nodeModules(t *testing.T) string {
	t.Helper()
	for _, dir := range filepath.SplitList(os.Getenv("NODE_PATH")) {
		if _, err := os.Stat(filepath.Join(dir, "@nats-io", "transport-node")); err == nil {
			return filepath.Dir(dir) // where node_modules is, so that an import finds it
		}
	}
	skip(t, "node", "no NATS client for Node: npm install @nats-io/transport-node, and set NODE_PATH to its node_modules")
	return ""
}
