package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
)

// opened returns the ids of the questions that are in the log, by their texts.
func (f *fixture) opened(id string) map[string]string {
	f.Helper()
	found := map[string]string{}
	for _, e := range f.events(id) {
		if e.Kind != jobs.AskOpened {
			continue
		}
		var ask control.Ask
		var questions []control.Question
		f.must(json.Unmarshal(e.Data, &ask))
		f.must(json.Unmarshal(ask.Questions, &questions))
		found[questions[0].Question] = ask.Ask
	}
	return found
}

// A program of the jail asks, and continues with the answer: two questions at once, one
// without an answer, one that is declined, one whose asker dies, and one that is open
// when its agent is stopped.
func TestAskFromTheJail(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "1")
	id := f.submit(`
penstock ask "Which one?" --option Red --option Blue >one & one=$!
penstock ask "And why?" >two & two=$!
wait $one && wait $two || exit 9
echo "got $(cat one) because $(cat two)"
penstock ask "Late?" --timeout 100ms; echo "late $?"
penstock ask "May I?"; echo "declined $?"
penstock ask "Gone?" & gone=$!
penstock ask "Now?"; kill -9 $gone
penstock ask "Last?"; echo "never"`, "--idle-timeout", "5m")
	asked := func(question string) string {
		f.eventually(30*time.Second, question, func() bool { return f.opened(id)[question] != "" })
		return f.opened(id)[question]
	}
	one, two := asked("Which one?"), asked("And why?")
	if _, code, told := f.try("answer", id, "--text", "x"); code != 6 || !strings.Contains(told, "2 questions are open") {
		t.Errorf("an answer to either ended with %d: %s", code, told)
	}
	if _, code, told := f.try("answer", id, "--ask", one, "--option", "Green"); code != 6 || !strings.Contains(told, "Red, Blue") {
		t.Errorf("a wrong answer ended with %d: %s", code, told)
	}
	f.run("answer", id, "--ask", two, "--text", "it burns")
	f.run("answer", id, "--option", "2")
	asked("May I?")
	f.run("answer", id, "--deny", "--text", "not today")
	asked("Gone?")
	f.run("answer", id, "--ask", asked("Now?"), "--text", "now")
	asked("Last?")
	f.eventually(30*time.Second, "the question of who was killed is withdrawn", func() bool { return count(f.events(id), jobs.AskClosed) == 6 })
	f.run("job", "stop", id)
	f.eventually(30*time.Second, "the job ends", func() bool { return f.record(id).State == jobs.Finished })
	var lines, how []string
	for _, e := range f.events(id) {
		switch e.Kind {
		case jobs.OutputLine:
			var line event.OutputLine
			f.must(json.Unmarshal(e.Data, &line))
			lines = append(lines, line.Text)
		case jobs.AskClosed:
			var ask control.Ask
			f.must(json.Unmarshal(e.Data, &ask))
			how = append(how, ask.How)
		}
	}
	all := strings.Join(lines, "\n")
	for _, want := range []string{"got Blue because it burns", "late 8", "not today", "declined 6"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in\n%s", want, all)
		}
	}
	if got := fmt.Sprint(how); got != "[answered answered expired declined answered withdrawn withdrawn]" || strings.Contains(all, "never") {
		t.Errorf("the questions ended as %s\n%s", got, all)
	}
}

// An agent that floods its worker harms its own job only, and not that much: it
// is told off, and ends as it would have.
func TestAFloodFromTheJail(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "1")
	id := f.submit(`
penstock result '"before"'
truncate -s 1G big && ! penstock artifact big; rm big
token=${PENSTOCK_INSIDE#http://}; token=${token%@*}
auth=$(printf '%s:' "$token" | base64)
for i in 1 2 3 4 5 6 7 8 9 10; do printf 'PUT /v1/result HTTP/1.1\r\nHost: x\r\nAuthorization: Basic %s\r\nContent-Length: 2\r\n\r\n"x' "$auth"; done >ten
for i in 1 2 3 4 5 6 7 8 9 10; do cat ten ten ten ten ten ten ten ten ten ten; done >thousand
bash -c 'exec 3<>/dev/tcp/127.0.0.1/3127; cat <&3 >answers & for i in {1..100}; do cat thousand; done >&3; wait'
grep -c " 429 " answers
penstock milestone after; echo "then $?"
echo fine >file; rm -f answers ten thousand`)
	f.eventually(30*time.Second, "the job ends", func() bool { return f.record(id).State == jobs.Finished })
	events := f.events(id)
	var text strings.Builder
	for _, e := range events {
		fmt.Fprintf(&text, "%s %s\n", e.Kind, e.Data)
	}
	if got := f.record(id).Outcome; got != jobs.Success || count(events, jobs.ResultSet) != 1 || count(events, jobs.ArtifactStored) != 0 || len(events) > 50 {
		t.Errorf("ended as %s after %d events:\n%s", got, len(events), text.String())
	}
	for _, want := range []string{"too many requests", "then 1", "artifact big has 1073741824 bytes"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
}
