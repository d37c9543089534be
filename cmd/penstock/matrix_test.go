package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// An asking is a command that asks for an operation, and for others before it.
type asking struct {
	args []string // JOB is a job that has ended
	also []string // operations without which it does not come to its own
	// ends is the operation with which the command ends where there is nothing of the name:
	// of those, a role that may only look is refused nothing.
	ends string
}

// ofCommands has a command for each operation. The names are of nothing: what is allowed
// gets as far as a dispatcher, which finds nothing.
func ofCommands(repo string) map[string]asking {
	job := []string{"get"}
	return map[string]asking{
		"submit":             {args: []string{"submit", "--repo", repo, "--queue", "later", "--", "true"}},
		"get":                {args: []string{"job", "get", "JOB"}},
		"list":               {args: []string{"job", "ls"}},
		"result":             {args: []string{"wait", "JOB"}, also: []string{"get", "events"}},
		"why":                {args: []string{"why", "JOB"}},
		"send":               {args: []string{"job", "interrupt", "JOB"}, also: job},
		"cancel":             {args: []string{"job", "cancel", "JOB"}},
		"retry":              {args: []string{"job", "retry", "JOB"}},
		"resume":             {args: []string{"job", "resume", "JOB"}, also: job},
		"fork":               {args: []string{"job", "fork", "JOB", "--prompt", "x"}, also: job},
		"review":             {args: []string{"review", "--accept", "JOB"}, also: job},
		"purge":              {args: []string{"job", "purge", "nothing"}, also: job},
		"events":             {args: []string{"logs", "JOB"}, also: job},
		"artifacts":          {args: []string{"job", "artifacts", "JOB"}, also: job},
		"patch":              {args: []string{"job", "diff", "JOB"}, also: job},
		"batch-list":         {args: []string{"batch", "ls"}},
		"batch-report":       {args: []string{"batch", "report", "nothing"}},
		"batch-cancel":       {args: []string{"batch", "cancel", "nothing"}},
		"batch-pause":        {args: []string{"batch", "pause", "nothing"}},
		"batch-resume":       {args: []string{"batch", "resume", "nothing"}},
		"queue-list":         {args: []string{"queue", "ls"}},
		"stats":              {args: []string{"queue", "stats"}},
		"queue-pause":        {args: []string{"queue", "pause", "nothing"}},
		"queue-resume":       {args: []string{"queue", "resume", "nothing"}},
		"caps":               {args: []string{"queue", "caps"}},
		"budgets":            {args: []string{"cost", "--budgets"}},
		"workers":            {args: []string{"worker", "ls"}},
		"worker-get":         {args: []string{"worker", "get", "nothing"}},
		"worker-drain":       {args: []string{"worker", "drain", "nothing"}},
		"worker-resume":      {args: []string{"worker", "resume", "nothing"}},
		"dead-list":          {args: []string{"dead", "ls"}},
		"dead-get":           {args: []string{"dead", "get", "nothing"}},
		"dead-retry":         {args: []string{"dead", "retry", "nothing"}, ends: "dead-get"},
		"dead-drop":          {args: []string{"dead", "drop", "nothing"}, ends: "dead-get"},
		"schedule-add":       {args: []string{"schedule", "add", "one", "--every", "24h", "--repo", repo, "--", "true"}},
		"schedule-list":      {args: []string{"schedule", "ls"}},
		"schedule-get":       {args: []string{"schedule", "get", "nothing"}},
		"schedule-pause":     {args: []string{"schedule", "pause", "nothing"}},
		"schedule-resume":    {args: []string{"schedule", "resume", "nothing"}},
		"schedule-run":       {args: []string{"schedule", "run", "nothing"}},
		"schedule-remove":    {args: []string{"schedule", "rm", "nothing"}},
		"token-add":          {args: []string{"token", "add", "one", "--role", "viewer"}},
		"token-list":         {args: []string{"token", "ls"}},
		"token-remove":       {args: []string{"token", "rm", "nothing"}},
		"webhook-add":        {args: []string{"webhook", "add", "one", "--url", "https://example.com/in"}},
		"webhook-list":       {args: []string{"webhook", "ls"}},
		"webhook-remove":     {args: []string{"webhook", "rm", "nothing"}},
		"webhook-test":       {args: []string{"webhook", "test", "nothing"}},
		"webhook-deliveries": {args: []string{"webhook", "deliveries"}},
		"webhook-redeliver":  {args: []string{"webhook", "redeliver", jobs.NewID()}},
		"audit":              {args: []string{"audit"}},
	}
}

// withoutCommand are the operations that no command asks for as its first one, each with
// the reason. dispatcher/httpapi asks for all of them as each role.
var withoutCommand = map[string]string{
	"show":             "job get shows the record and the result to a role that may not",
	"wait":             "wait follows events; batch run asks for this once it has submitted",
	"batch-get":        "batch status asks for it where no results directory is",
	"pull-request":     "review --deliver pr asks for it once the result is accepted",
	"holds":            "part of queue pause, queue resume and batch run",
	"webhook-replace":  "webhook add --replace asks for it",
	"schedule-replace": "schedule add --replace asks for it",
}

// inProcess runs a command in this process. It returns the exit code, and what it said.
func inProcess(t *testing.T, args []string) (code int, said string) {
	var out, told bytes.Buffer
	none := func(string) string { return "" }
	a := &app{in: strings.NewReader(""), out: console.New(&out, none), err: console.New(&told, none)}
	code = run(t.Context(), a, args)
	return code, told.String()
}

// Each command is allowed to the roles that the table of operations names and refused to
// all others, on the bus and over HTTP; no operation is left out without a reason. That a
// request on the bus, and one over HTTP, are refused alike is tested with the HTTP server.
func TestEveryCommandAndRole(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	address := "http://" + f.serveHTTP("--slots", "1")
	job := f.submit("true")
	f.run("wait", "--timeout", patience(60), job)
	ways := map[string][]string{}
	for role, flags := range f.credentials() {
		ways["on the bus as "+string(role)] = flags
	}
	for _, role := range jobs.TokenRoles {
		ways["over HTTP as "+string(role)] = f.overHTTP(address, role)
	}
	commands := ofCommands(f.repo)
	var g errgroup.Group
	g.SetLimit(4)
	began := time.Now()
	rows := map[string]operation.Row{}
	for _, row := range operation.All() {
		rows[row.Name] = row
	}
	for _, row := range operation.All() {
		command, ok := commands[row.Name]
		if withoutCommand[row.Name] == "" && !ok {
			t.Errorf("no command asks for %s, and no reason is named", row.Name)
		}
		if !ok {
			continue
		}
		for way, flags := range ways {
			role := jobs.Role(way[strings.LastIndexByte(way, ' ')+1:])
			last := row
			if command.ends != "" {
				last = rows[command.ends]
			}
			allowed := last.Allows(role) && !slices.ContainsFunc(command.also, func(name string) bool { return !rows[name].Allows(role) })
			args := slices.Clone(command.args)
			if i := slices.Index(args, "JOB"); i >= 0 {
				args[i] = job
			}
			g.Go(func() error { // it returns none, so that all are told
				code, said := inProcess(t, after(args, flags))
				refused := code == cli.ExitDenied && strings.Contains(said, "not allowed")
				if refused == allowed || code == cli.ExitUnreachable {
					t.Errorf("penstock %v %s: %d %s, and the table says allowed: %t", args, way, code, said, allowed)
				}
				if refused && !strings.Contains(said, "hint: ") {
					t.Errorf("penstock %v %s has no hint: %s", args, way, said)
				}
				return nil
			})
		}
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("%d commands in %d ways: %v", len(commands), len(ways), time.Since(began).Round(time.Millisecond))
}
