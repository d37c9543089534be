package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
)

// publish.mjs is the client of somebody who uses Node and knows nothing of
// this program but its documentation.
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
	f := newField(t)
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

// follower is the client of somebody who watches a session from Node, as the
// documentation says, with a viewer's credential and the client library alone.
const follower = `
import { readFileSync } from "node:fs";
import { connect, delay, nkeyAuthenticator, nkeys } from "@nats-io/transport-node";
import { jetstreamManager } from "@nats-io/jetstream";

const [file, session] = process.argv.slice(2);
const seed = new TextEncoder().encode(readFileSync(file, "utf8").match(/^SU\w+$/m)[0]);
const key = nkeys.fromSeed(seed).getPublicKey();
const nc = await connect({ servers: process.env.URL, authenticator: nkeyAuthenticator(seed), inboxPrefix: "_INBOX_" + key });
const jsm = await jetstreamManager(nc, { apiPrefix: "PSJS", checkAPI: false });

const events = "penstock.v1.sessions.default." + session + ".events";
const bell = nc.subscribe(events.replace(".sessions.", ".stored."))[Symbol.asyncIterator]();
let rings = bell.next();
for (let seq = 1, over = false; !over; ) {
  const m = await jsm.direct.getMessage("PS_EVENTS", { seq, next_by_subj: events });
  if (m === null) { // nothing yet: until something is stored, or somebody missed it
    await Promise.race([rings.then(() => { rings = bell.next(); }), delay(5000)]);
    continue;
  }
  const event = m.json();
  console.log(JSON.stringify([event.seq, event.kind]));
  seq = m.seq + 1;
  over = event.kind === "job.finished";
}
try {
  await jsm.streams.purge("PS_EVENTS");
  console.log("purged");
} catch (err) {
  console.log("refused");
}
await nc.close();
process.exit(0);
`

// A viewer follows a session with its client library, from the first event to the
// last, while they come.
func TestAViewerFollowsInAnotherLanguage(t *testing.T) {
	t.Parallel()
	f := newField(t)
	modules := nodeModules(t)
	if _, err := os.Stat(filepath.Join(modules, "node_modules", "@nats-io", "jetstream")); err != nil {
		skip(t, "node", "no JetStream client for Node: npm install @nats-io/jetstream beside @nats-io/transport-node")
	}
	f.serve("--slots", "1")
	endpoint, err := natsd.Find(filepath.Join(f.data, "nats"))
	f.must(err)
	creds := filepath.Join(t.TempDir(), "eve.creds")
	f.run("nats", "credentials", "viewer", "--name", "eve", "--file", creds)
	script := filepath.Join(modules, "follow-"+jobs.NewID()+".mjs")
	f.must(os.WriteFile(script, []byte(follower), 0o644))
	t.Cleanup(func() { _ = os.Remove(script) })
	id := f.submit("for i in 1 2 3 4 5 6; do echo line $i; sleep 0.3; done")
	cmd := exec.Command("node", script, creds, id)
	cmd.Env = append(os.Environ(), "URL="+endpoint.URL)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("node: %v\n%s", err, out)
	}
	var want strings.Builder
	for _, e := range f.events(id) {
		line, err := json.Marshal([]any{e.Seq, e.Kind})
		f.must(err)
		want.Write(append(line, '\n'))
		if e.Kind == jobs.JobFinished {
			break
		}
	}
	if got := strings.TrimSuffix(string(out), "refused\n"); got != want.String() || got == string(out) {
		t.Errorf("the viewer has seen\n%s\nwant, and that a purge is refused\n%s", out, want.String())
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
