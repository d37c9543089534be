package jobs_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// What is not as the specification has it is as if it were not there.
func TestReadTrace(t *testing.T) {
	for sent, want := range map[string]string{
		parent: parent,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
		"cc" + parent[2:]:           parent, // a version to come
		"cc" + parent[2:] + "-more": parent,
		"cc" + parent[2:] + "more":  "",
		parent + "-more":            "",
		"ff" + parent[2:]:           "", // never a version
		"0" + parent[2:]:            "",
		"":                          "",
		"00":                        "",
		strings.ToUpper(parent):     "",
		parent + "\n":               "",
		" " + parent:                "",
		strings.Replace(parent, "4bf92f3577b34da6a3ce929d0e0e4736", strings.Repeat("0", 32), 1): "",
		strings.Replace(parent, "00f067aa0ba902b7", strings.Repeat("0", 16), 1):                 "",
		strings.Replace(parent, "4bf9", "4bfg", 1):                                              "",
		strings.Repeat("0", 10_000):                                                             "",
	} {
		if got := jobs.ReadTrace(sent, ""); got.Parent != want {
			t.Errorf("%q is read as %q, want %q", sent, got.Parent, want)
		}
	}
	var many []string
	for i := range 33 {
		many = append(many, fmt.Sprintf("k%d=v", i))
	}
	for state, good := range map[string]bool{
		"": true, "a=1": true, "a=1, b=2,,\tc@d=x y": true, strings.Join(many[:32], ","): true, "a=" + strings.Repeat("x", 256): true,
		"a": false, "=1": false, "A=1": false, "a=1,a=2": false, "a=1\nb=2": false, "a=ü": false, "a=1=2": false,
		strings.Join(many, ","): false, "a=" + strings.Repeat("x", 257): false, "a=1," + strings.Repeat(" ", 509): false, strings.Repeat("a=1,", 2500): false,
	} {
		got := jobs.ReadTrace(parent, state)
		if got.Parent != parent || (got.State == state) != good || !good && got.State != "" {
			t.Errorf("tracestate %.40q is read as %+v, want it %t", state, got, good)
		}
	}
}

// Headers are written in any case. A trace that stands there twice is none.
func TestTraceOf(t *testing.T) {
	want := jobs.Trace{Parent: parent, State: "a=1,b=2"}
	if got := jobs.TraceOf(map[string][]string{"Traceparent": {parent}, "TRACESTATE": {"a=1", "b=2"}}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, header := range []map[string][]string{nil, {"tracestate": {"a=1"}}, {"traceparent": {parent, parent}}, {"traceparent": {parent}, "Traceparent": {parent}}} {
		if got := jobs.TraceOf(header); got != (jobs.Trace{}) {
			t.Errorf("%v: got %+v", header, got)
		}
	}
	sent := map[string][]string{}
	want.Put(func(name, value string) { sent[name] = []string{value} })
	if got := jobs.TraceOf(sent); got != want || len(sent) != 2 {
		t.Errorf("%v was sent of %+v", sent, want)
	}
	jobs.Trace{}.Put(func(name, value string) { t.Errorf("%s: %s is sent of no trace", name, value) })
}

func TestTraceParts(t *testing.T) {
	trace := jobs.Trace{Parent: parent, State: "a=1"}
	if trace.TraceID() != "4bf92f3577b34da6a3ce929d0e0e4736" || trace.SpanID() != "00f067aa0ba902b7" || !trace.Sampled() {
		t.Errorf("the parts are %s, %s, %t", trace.TraceID(), trace.SpanID(), trace.Sampled())
	}
	child, other := trace.Child("a"), trace.Child("b")
	switch {
	case child != trace.Child("a"), child == other, child.SpanID() == trace.SpanID():
		t.Errorf("children are %+v and %+v", child, other)
	case child.TraceID() != trace.TraceID(), child.State != "a=1", !child.Sampled(), jobs.ReadTrace(child.Parent, child.State) != child:
		t.Errorf("the child is %+v", child)
	}
	if got := (jobs.Trace{Parent: parent[:53] + "fe"}).Child("a"); got.Sampled() || !strings.HasSuffix(got.Parent, "-02") {
		t.Errorf("flags that are not known become %s", got.Parent)
	}
	for _, none := range []jobs.Trace{{}, {Parent: "x"}, {Parent: strings.Repeat("\xff", 55)}} {
		if none.TraceID() != "" || none.SpanID() != "" || none.Sampled() || none.Child("a") != (jobs.Trace{}) {
			t.Errorf("%q has parts", none.Parent)
		}
	}
}

// What a job says of its trace itself is refused where it is wrong, and the place is named.
func TestTraceOfAJob(t *testing.T) {
	decode := func(trace string) (jobs.Job, error) {
		return jobs.Decode([]byte(`{"prompt":"x","agent":{"name":"claude"},"repo":{"url":"/r"},"trace":` + trace + `}`))
	}
	job, err := decode(`{"traceparent":"` + parent + `","tracestate":"a=1"}`)
	if want := (jobs.Trace{Parent: parent, State: "a=1"}); err != nil || job.Trace != want {
		t.Errorf("got %+v, %v", job.Trace, err)
	}
	for text, want := range map[string]string{
		`"` + parent + `"`:                                        "trace: wants an object",
		`{"parent":"` + parent + `"}`:                             "trace.parent: is not a field",
		`{"tracestate":"a=1"}`:                                    "trace.traceparent: is missing",
		`{"traceparent":"cc` + parent[2:] + `"}`:                  "trace.traceparent: is not a traceparent",
		`{"traceparent":"` + parent + `\n"}`:                      "trace.traceparent: is not a traceparent",
		`{"traceparent":"` + parent + `","tracestate":"a"}`:       `trace.tracestate: "a" is not a member`,
		`{"traceparent":"` + parent + `","tracestate":"a=1,a=2"}`: "trace.tracestate: has the key a twice",
		`{"traceparent":"` + parent + `","tracestate":"a=` + strings.Repeat("x", 10_000) + `"}`:                    "trace.tracestate: is 10002 bytes long",
		`{"traceparent":"00-` + strings.Repeat("0", 32) + `-00f067aa0ba902b7-01"}`:                                 "trace.traceparent: has a trace of zeros",
		`{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-` + strings.Repeat("0", 16) + `-01","tracestate":""}`: "trace.traceparent: has a span of zeros",
	} {
		if _, err := decode(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.90s: got %v, want %s", text, err, want)
		}
	}
	if in := job.In(jobs.RootTrace("x")); in.Trace.Parent != parent {
		t.Errorf("a job with a trace became a part of %+v", in.Trace)
	}
	if in := (jobs.Job{Signature: &jobs.Signature{}}).In(job.Trace); in.Trace != (jobs.Trace{}) {
		t.Errorf("a signed job became a part of %+v", in.Trace)
	}
	other := job
	other.Trace = jobs.Trace{}
	if differs, err := jobs.Differences(job, other); err != nil || len(differs) > 0 {
		t.Errorf("a job differs by its trace in %v, %v", differs, err)
	}
}

// The spans of a job are the same for each process that knows its record: also one that
// an earlier version wrote, and one that was made again of the same job.
func TestSpansOfAJob(t *testing.T) {
	id := jobs.NewID()
	for name, job := range map[string]jobs.Job{"without a trace": {}, "with one": {Trace: jobs.Trace{Parent: parent, State: "a=1"}}} {
		rec := jobs.NewRecord(id, "default", job, time.Now())
		if again := jobs.NewRecord(id, "default", job, time.Now()); again.Trace != rec.Trace || rec.Trace.TraceID() == "" {
			t.Errorf("%s: the record has %+v, and again %+v", name, rec.Trace, again.Trace)
		}
		submission, above := rec.Submission()
		if above != job.Trace || rec.Span(0) != submission {
			t.Errorf("%s: the submission %+v is a child of %+v, and span 0 is %+v", name, submission, above, rec.Span(0))
		}
		spans := map[string]bool{rec.Trace.SpanID(): true}
		if job.Trace != (jobs.Trace{}) { // else the record's span is the submission's
			spans[submission.SpanID()] = true
		}
		retried := rec.Afresh()
		for attempt := range 3 {
			span := retried.Span(attempt + 1)
			if spans[span.SpanID()] || span.TraceID() != rec.Trace.TraceID() || span.State != job.Trace.State {
				t.Errorf("%s: attempt %d is %+v", name, attempt+1, span)
			}
			spans[span.SpanID()] = true
		}
		if fork := job.Forked(id, "more"); fork.Trace != (jobs.Trace{}) {
			t.Errorf("%s: its fork is part of %+v", name, fork.Trace)
		}
	}
	var old jobs.Record
	if err := json.Unmarshal([]byte(`{"id":"`+id+`"}`), &old); err != nil {
		t.Fatal(err)
	}
	if want := jobs.NewRecord(id, "default", jobs.Job{}, time.Now()); old.Span(1) != want.Span(1) {
		t.Errorf("a record without a trace has %+v, want %+v", old.Span(1), want.Span(1))
	}
	if one, two := jobs.RootTrace(id), jobs.RootTrace(jobs.NewID()); one.TraceID() == two.TraceID() || !one.Sampled() {
		t.Errorf("roots are %+v and %+v", one, two)
	}
}

// Whatever is sent, what is read is valid.
func FuzzReadTrace(f *testing.F) {
	f.Add(parent, "a=1,b=2")
	f.Fuzz(func(t *testing.T, parent, state string) {
		got := jobs.ReadTrace(parent, state)
		if got == (jobs.Trace{}) {
			return
		}
		if again := jobs.ReadTrace(got.Parent, got.State); again != got || strings.ContainsAny(got.Parent+got.State, "\r\n\x00") || len(got.State) > 512 {
			t.Errorf("%q, %q is read as %+v, and that as %+v", parent, state, got, again)
		}
	})
}
