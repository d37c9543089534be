package worker

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

// A check's tests are in its event and in the result, whatever reports the agent and earlier
// checks have left.
func TestReportsOfTests(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.sh(f.repo, `mkdir out && echo '<testsuite><testcase name="of the base"><failure/></testcase></testsuite>' > out/base.xml && git add -A && git commit -q -m report`)
	stop := f.work()
	defer stop()
	const (
		pass = `echo '<testsuite><testcase name="a"/></testsuite>' > out/a.xml`
		fail = `echo '<testsuite><testcase name="b" classname="pkg"><failure/></testcase><testcase name="c"/></testsuite>' > out/b.xml; exit 1`
	)
	for _, tt := range []struct {
		name, agent string
		checks      []string
		reason      jobs.Reason
		want        []*jobs.Tests
	}{
		{"each has its own", "true", []string{pass, fail}, jobs.CheckFailed, []*jobs.Tests{{Passed: 1}, {Passed: 1, Failed: 1, FailedCases: []string{"pkg: b"}}}},
		{"of the base", "true", []string{"true"}, "", []*jobs.Tests{{Notes: []string{"the check wrote none of the 1 reports that are there"}}}},
		{"no XML", "true", []string{"echo ok > out/a.xml; " + strings.Replace(pass, "a.xml", "b.xml", 1)}, "", []*jobs.Tests{{Passed: 1, Notes: []string{"out/a.xml: is not XML"}}}},
		{"links", "true", []string{"ln -s /etc/passwd out/l.xml; ln -s base.xml out/m.xml; mkfifo out/f.xml; ln out/base.xml out/n.xml; " + pass}, "", []*jobs.Tests{{Passed: 1, Notes: []string{
			"out/base.xml: has 2 names (hard links): a copy would be kept", "out/f.xml: is no regular file",
			"out/l.xml: is a link, and those are not followed", "out/m.xml: is a link, and those are not followed",
			"out/n.xml: has 2 names (hard links): a copy would be kept",
		}}}},
		{"a directory that is a link", "rm -r out; ln -s /etc out", []string{"true"}, "", []*jobs.Tests{{Notes: []string{"out/*.xml: there is no such file; links are not followed"}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			job := f.job(tt.agent)
			job.Check, job.CheckReports = tt.checks, []string{"out/*.xml"}
			job.Retry.MaxAttempts = 1
			rec, events := f.ended(f.submit(job).ID)
			var result jobs.Result
			f.must(json.Unmarshal(events[len(events)-1].Data, &result))
			var told, kept []*jobs.Tests
			for _, d := range dataOf[event.CheckEnded](t, events, jobs.CheckEnded) {
				told = append(told, d.Tests)
			}
			for _, c := range result.Checks {
				kept = append(kept, c.Tests)
			}
			if rec.Reason != tt.reason || !reflect.DeepEqual(told, tt.want) || !reflect.DeepEqual(kept, tt.want) {
				shown := func(all []*jobs.Tests) string { b, _ := json.Marshal(all); return string(b) }
				t.Errorf("ended with %q %s; events\n%s\nresult\n%s\nwant\n%s", rec.Reason, rec.Message, shown(told), shown(kept), shown(tt.want))
			}
		})
	}

	// Many names of many rounds do not make a result that no message can take.
	job := f.job("true")
	job.Check = []string{`{ echo '<testsuite>'; for i in $(seq 40); do echo "<testcase name='n$i'><failure/></testcase>"; done; echo '</testsuite>'; } > out/many.xml; exit 1`}
	job.CheckRounds, job.CheckReports, job.Retry.MaxAttempts = 6, []string{"out/many.xml"}, 1
	_, events := f.ended(f.submit(job).ID)
	var result jobs.Result
	f.must(json.Unmarshal(events[len(events)-1].Data, &result))
	var named []string
	for _, c := range result.Checks {
		if c.Tests.Failed != 40 {
			t.Errorf("%+v", c.Tests)
		}
		named = append(named, fmt.Sprint(len(c.Tests.FailedCases)))
	}
	if got := strings.Join(named, " "); got != "0 0 20 20 20 20 20" {
		t.Errorf("the checks of the result name %s", got)
	}
}
