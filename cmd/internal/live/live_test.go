package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/cmd/internal/measure/measuretest"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Some sessions are live at once in a real pool, and nothing of them is lost.
func TestAFewSessions(t *testing.T) {
	t.Parallel()
	measuretest.NeedJail(t)
	program := measuretest.Program(t)
	o, err := parse([]string{"-program", program, "-dir", t.TempDir(), "-sessions", "12", "-lines", "10", "-every", "1s"})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err = run(t.Context(), o, &out)
	t.Log(out.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"12, 12, 12\n", " MiB, ", ", 0\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not tell %q", want)
		}
	}
}

// What is missing of a session is found.
func TestWhole(t *testing.T) {
	t.Parallel()
	session := func(lines ...int) (all []jobs.Event) {
		for i, n := range lines {
			e := jobs.Event{Seq: uint64(i + 1), Kind: jobs.OutputLine, Data: json.RawMessage(fmt.Sprintf(`{"text":"line %d"}`, n))}
			if n == 0 {
				e = jobs.Event{Seq: uint64(i + 1), Kind: jobs.Notice}
			}
			all = append(all, e)
		}
		return all
	}
	for name, c := range map[string]struct {
		events []jobs.Event
		says   string
	}{
		"all":             {session(0, 1, 2, 0, 3), ""},
		"a line missing":  {session(0, 1, 3), `says "line 3", and should say "line 2"`},
		"a line twice":    {session(1, 2, 2, 3), `says "line 2", and should say "line 3"`},
		"the last":        {session(1, 2), "2 of 3 lines"},
		"a gap":           {slices.Delete(session(0, 0, 1, 2, 3), 1, 2), "event 3 is there, and should be 2"},
		"nothing is here": {nil, "0 of 3 lines"},
	} {
		if err := whole(c.events, 3); (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// Each thing that must not be ends the run.
func TestJudge(t *testing.T) {
	t.Parallel()
	good := report{sessions: 5, live: 5, succeeded: 5, attempts: 5}
	if err := good.judge(); err != nil {
		t.Errorf("a good one: %v", err)
	}
	for want, with := range map[string]func(*report){
		"4 of 5 jobs succeeded, in 5 attempts": func(r *report) { r.succeeded = 4 },
		"5 of 5 jobs succeeded, in 6 attempts": func(r *report) { r.attempts = 6 },
		"at most 3 of 5 sessions":              func(r *report) { r.live = 3 },
		"lost":                                 func(r *report) { r.wrong = []error{fmt.Errorf("lost")} },
	} {
		bad := good
		with(&bad)
		if err := bad.judge(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	for _, args := range [][]string{{"-sessions", "0"}, {"-lines", "0"}, {"-every", "0s"}, {"x"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
}
