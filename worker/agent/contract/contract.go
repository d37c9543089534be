// Package contract runs coding agents as a worker does, against a scripted model, and finds
// out whether they do what their adapters claim.
//
//	Suite.Test ─▶ for each check: harness.Jail.Run ─▶ harness.Run ─▶ yes, no, failed, untried
//	                                      │ gate ─▶ agenttest.Model
//
// Nothing leaves the host: the model is a server on loopback, which speaks the wire formats of
// Anthropic, OpenAI and Google, and what an agent wants besides is refused by its gate. Each run
// has a jail of its own, ends within its limit, and leaves no process. An agent is untrusted:
// what a finding quotes of it is cut to size, but it may have any character.
package contract

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/harness"
	"github.com/penstock-run/penstock/worker/internal/disk"
)

// A Status says what came of a check.
type Status string

// The statuses of checks.
const (
	Yes     Status = "yes"       // it was seen
	No      Status = "no"        // the agent does not claim it, or says when it runs that it cannot
	Failed  Status = "failed"    // the agent claims it, and it was not seen
	Untried Status = "not tried" // there is no way to see it here
)

// A Finding is what came of one check.
type Finding struct {
	Group  string `json:"group"` // what the check is about
	Check  string `json:"check"`
	Means  string `json:"means"` // what an agent can do that has it
	Status Status `json:"status"`
	// Seen is what was seen of a check that failed, why one was not tried, or the version.
	Seen string `json:"seen,omitempty"`
}

// A Report is an agent's row in the table of abilities.
type Report struct {
	Agent    string    `json:"agent"`
	Protocol string    `json:"protocol"`
	API      string    `json:"api,omitempty"`
	Version  string    `json:"version,omitempty"` // as its program reports it
	Checks   []Finding `json:"checks"`
	Facts    Facts     `json:"facts"`
}

// Failed lists the checks that failed.
func (r Report) Failed() []string {
	var names []string
	for _, f := range r.Checks {
		if f.Status == Failed {
			names = append(names, f.Check)
		}
	}
	return names
}

// A Suite tests the agents of a host.
type Suite struct {
	Agents *agent.Agents
	Jail   harness.Jail
	// Program is the program to test; nil: the one that is found on this host.
	Program *agent.Program
	// Dir is a directory for workspaces and homes. Test removes what it makes there.
	Dir string
	// Only are the names of the checks and groups that are wanted. Empty: all.
	Only []string
	// Checked, if it is not nil, is called after each check.
	Checked func(Finding)
}

// A cannotError is why an agent has an ability in general, and this one does not.
type cannotError struct{ why string }

func (e *cannotError) Error() string { return e.why }

// An untriedError is why a check has no result.
type untriedError struct{ why string }

func (e *untriedError) Error() string { return e.why }

func untried(format string, args ...any) error { return &untriedError{fmt.Sprintf(format, args...)} }

// A check finds out about one ability.
type check struct {
	group, name, means string
	claimed            func(agent.About) bool // nil: it is required of every agent
	try                func(context.Context, *trial) error
}

// Test runs all checks with the agent of that name, which takes minutes with real ones. The error
// is why there is no report: the program is missing, or ctx ended.
func (s Suite) Test(ctx context.Context, name string) (report Report, err error) {
	adapter, err := s.Agents.Get(name)
	if err != nil {
		return Report{}, err
	}
	program, err := s.program(name)
	if err != nil {
		return Report{}, err
	}
	dir, err := os.MkdirTemp(s.Dir, "penstock-agent-test-")
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, disk.RemoveAll(dir)) }() // an agent may have closed directories in it
	t := &trial{about: adapter.About(), adapter: adapter, program: program, jail: s.Jail, dir: dir, messages: map[string]bool{}, unknown: map[string]bool{}}
	report = Report{Agent: name, Protocol: t.about.Protocol, API: t.about.API}
	for _, c := range checks {
		if len(s.Only) > 0 && !slices.Contains(s.Only, c.name) && !slices.Contains(s.Only, c.group) {
			continue
		}
		f := c.find(ctx, t)
		if ctx.Err() != nil {
			return Report{}, context.Cause(ctx)
		}
		if s.Checked != nil {
			s.Checked(f)
		}
		report.Checks = append(report.Checks, f)
	}
	report.Version = t.version
	report.Facts, err = t.facts(ctx)
	return report, err
}

func (s Suite) program(name string) (agent.Program, error) {
	if s.Program != nil {
		return *s.Program, nil
	}
	return s.Agents.Find(name)
}

func (c check) find(ctx context.Context, t *trial) Finding {
	f := Finding{Group: c.group, Check: c.name, Means: c.means, Status: Yes}
	if c.claimed != nil && !c.claimed(t.about) {
		f.Status = No
		return f
	}
	var err error
	if t.broken != nil {
		err = untried("its first prompt was not answered") // and each run may take as long as that one
	} else {
		err = c.try(ctx, t)
	}
	if c.name == "version" {
		f.Seen = t.version
	}
	_, notTried := errors.AsType[*untriedError](err)
	_, cannot := errors.AsType[*cannotError](err)
	switch {
	case err == nil:
		return f
	case notTried:
		f.Status = Untried
	case cannot:
		f.Status = No
	default:
		f.Status = Failed
	}
	f.Seen = short(err.Error())
	return f
}

// short cuts what an agent may have written.
func short(text string) string {
	if runes := []rune(text); len(runes) > 400 {
		return string(runes[:400]) + "…"
	}
	return text
}

// checks are all of them, in their order: later ones look at the runs of earlier ones.
var checks = slices.Concat(
	group("basics", basics), group("prompts", prompts), group("answers", answersOf), group("tools", toolsOf), group("isolation", isolation),
	group("failures", failures), group("output", outputs), group("dialogue", dialogues), group("permissions", permissions),
	group("context", windows), group("continuation", continuations), group("servers", servers),
)

func group(name string, of []check) []check {
	of = slices.Clone(of)
	for i := range of {
		of[i].group = name
	}
	return of
}

// Names are the names of all checks and of their groups.
func Names() []string {
	var names []string
	for _, c := range checks {
		if !slices.Contains(names, c.group) {
			names = append(names, c.group)
		}
		names = append(names, c.name)
	}
	return names
}
