package adaptertest

import (
	"slices"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent"
)

// Launch is the first launch of a small job with the agent of that name.
func Launch(name string) agent.Launch {
	return agent.Launch{
		Job: jobs.Job{Prompt: "Fix the typo", Agent: jobs.Agent{Name: name}},
		ID:  "01890000-0000-7000-8000-000000000001", Session: "01890000-0000-7000-8000-000000000001",
		Attempt: 1, Cwd: "/workspace", Files: "/run/penstock", Gate: "http://127.0.0.1:3128", Key: JailKey,
	}
}

// Plan plans the launch, or fails the test.
func Plan(t *testing.T, adapter agent.Adapter, l agent.Launch) agent.Plan {
	t.Helper()
	p, err := adapter.Launch(l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// FlagValue is the argument after a flag.
func FlagValue(args []string, flag string) string {
	if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

// Feed gives lines of stdout to a decoder and returns the last answer.
func Feed(d agent.Decoder, lines ...string) agent.Read {
	var r agent.Read
	for i, l := range lines {
		r = d.Line(agent.Line{Stream: agent.Stdout, N: i + 1, Bytes: []byte(l)})
	}
	return r
}
