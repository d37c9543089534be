package jobs

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// The names under which a trace stands in headers of requests and messages, in what
// MCP calls _meta, in attributes of CloudEvents and, in capitals, in environments.
const (
	TraceParent = "traceparent"
	TraceState  = "tracestate"
)

// A Trace says where something stands in a trace, in the words of W3C Trace Context:
// which trace it is part of, and which span of that trace it comes from. The zero value
// is no trace.
type Trace struct {
	Parent string `json:"traceparent"`
	State  string `json:"tracestate,omitempty"` // what tracing systems add for themselves
}

var traceParent = pattern(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// lenTraceParent is the length of a traceparent of version 00, and that of what the
// later versions begin with.
const lenTraceParent = 55

// Limits of a tracestate, which are those of the specification.
const (
	maxTraceState   = 512
	maxTraceMembers = 32
)

// traceMember is a member of a tracestate: a key and its value.
var traceMember = pattern(`^([a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})=[ -+\--<>-~]{0,255}[!-+\--<>-~]$`)

// ReadTrace reads a trace that a stranger has sent, as the specification has it: what
// is not well-formed is as if it were not there. A version to come is read as this one.
func ReadTrace(parent, state string) Trace {
	if len(parent) > lenTraceParent && parent[lenTraceParent] == '-' && !strings.HasPrefix(parent, "00") {
		parent = parent[:lenTraceParent]
	}
	if version, rest, _ := strings.Cut(parent, "-"); len(version) == 2 && isHex(version) && version != "ff" {
		parent = "00-" + rest
	}
	t := Trace{Parent: parent}
	if t.checkParent() != nil {
		return Trace{}
	}
	if (Trace{State: state}).checkState() == nil {
		t.State = state
	}
	return t
}

// TraceOf reads the trace in headers, whose names are written in any case.
func TraceOf(header map[string][]string) Trace {
	var parents, states []string
	for name, values := range header {
		switch strings.ToLower(name) {
		case TraceParent:
			parents = append(parents, values...)
		case TraceState:
			states = append(states, values...)
		}
	}
	if len(parents) != 1 {
		return Trace{}
	}
	return ReadTrace(parents[0], strings.Join(states, ","))
}

// Put calls set for the names under which the trace is sent, with their values.
func (t Trace) Put(set func(name, value string)) {
	if t.Parent != "" {
		set(TraceParent, t.Parent)
	}
	if t.State != "" {
		set(TraceState, t.State)
	}
}

// RootTrace returns the trace that a job begins which was submitted without one. The
// id of the job decides it, so that whoever makes a record of the job makes the same.
func RootTrace(id string) Trace {
	sum := sha256.Sum256([]byte("penstock trace " + id))
	return Trace{Parent: "00-" + hexOf(sum[:16]) + "-" + hexOf(sum[16:24]) + "-01"}
}

// Child returns the place of a span under this one. The name decides the span's id, so
// that each process that knows the trace knows the span.
func (t Trace) Child(name string) Trace {
	if t.TraceID() == "" {
		return Trace{}
	}
	sum := sha256.Sum256([]byte("penstock span " + t.TraceID() + " " + t.SpanID() + " " + name))
	// Flags that this version does not know are not passed on.
	t.Parent = fmt.Sprintf("%s%s-%02x", t.Parent[:36], hexOf(sum[:8]), t.flags()&3)
	return t
}

// hexOf writes an id, which must not be zero.
func hexOf(id []byte) string {
	text := hex.EncodeToString(id)
	if isZero(text) {
		text = text[:len(text)-1] + "1"
	}
	return text
}

// TraceID returns the id of the trace, 32 digits; empty: it is none.
func (t Trace) TraceID() string { return t.part(3, 35) }

// SpanID returns the id of the span, 16 digits; empty: it is none.
func (t Trace) SpanID() string { return t.part(36, 52) }

// Sampled reports whether who began the trace records it.
func (t Trace) Sampled() bool { return t.flags()&1 == 1 }

func (t Trace) flags() uint64 {
	flags, _ := strconv.ParseUint(t.part(53, 55), 16, 8) // 0 where there are none
	return flags
}

func (t Trace) part(from, to int) string {
	if !traceParent().MatchString(t.Parent) { // of a record that another program wrote
		return ""
	}
	return t.Parent[from:to]
}

func (t Trace) checkParent() error {
	const form = "00-, 32 digits of a trace, -, 16 of a span, -, 2 of flags, all hexadecimal in lower case"
	switch {
	case t.Parent == "":
		return fmt.Errorf("is missing: %s", form)
	case !traceParent().MatchString(t.Parent):
		return fmt.Errorf("is not a traceparent of W3C Trace Context: %s", form)
	case isZero(t.TraceID()):
		return fmt.Errorf("has a trace of zeros only, which is none")
	case isZero(t.SpanID()):
		return fmt.Errorf("has a span of zeros only, which is none")
	}
	return nil
}

func (t Trace) checkState() error {
	if len(t.State) > maxTraceState {
		return fmt.Errorf("is %d bytes long, at most %d are allowed", len(t.State), maxTraceState)
	}
	seen := map[string]bool{}
	for member := range strings.SplitSeq(t.State, ",") {
		member = strings.Trim(member, " \t")
		key, _, _ := strings.Cut(member, "=")
		switch {
		case member == "": // which the specification allows
		case !traceMember().MatchString(member):
			return fmt.Errorf("%s is not a member of a tracestate of W3C Trace Context: key=value", strconv.Quote(member))
		case seen[key]:
			return fmt.Errorf("has the key %s twice", key)
		default:
			seen[key] = true
		}
	}
	if len(seen) > maxTraceMembers {
		return fmt.Errorf("has %d members, at most %d are allowed", len(seen), maxTraceMembers)
	}
	return nil
}

func isZero(digits string) bool { return strings.Trim(digits, "0") == "" }

func isHex(digits string) bool { return strings.Trim(digits, "0123456789abcdef") == "" }

func (j Job) validateTrace(found *InvalidError) {
	if j.Trace == (Trace{}) {
		return
	}
	found.add("trace."+TraceParent, j.Trace.checkParent())
	found.add("trace."+TraceState, j.Trace.checkState())
}

// In returns the job as a part of a trace, unless it is of one already. A job that is
// signed stays as it is: the signature covers the trace, too.
func (j Job) In(t Trace) Job {
	if j.Trace == (Trace{}) && j.Signature == nil {
		j.Trace = t
	}
	return j
}

// Submission returns the span of the job's submission, and what that is a child of; the
// zero value: the submission is the root of the trace. Each job of a batch begins a trace:
// one trace of thousands of jobs shows nothing.
func (r Record) Submission() (span, parent Trace) {
	root := RootTrace(r.ID)
	if r.Batch != "" || r.Trace == root || r.Trace.TraceID() == "" { // the last is of a version that knew no traces
		return root, Trace{}
	}
	return r.Trace.Child("submit " + r.ID), r.Trace
}

// Link returns what the submission has to do with besides the spans above it: for a job of
// a batch, where the batch was submitted. The zero value is nothing.
func (r Record) Link() Trace {
	if span, _ := r.Submission(); r.Batch != "" && r.Trace.TraceID() != span.TraceID() {
		return r.Trace
	}
	return Trace{}
}

// LogFields returns what each line of a log says that is about the job: names and values.
func (r Record) LogFields() []any {
	span, _ := r.Submission()
	return []any{"job", r.ID, "session", r.Session, "attempt", r.Attempt, "queue", r.Queue, "trace_id", span.TraceID()}
}

// Span returns the span of an attempt, which is a child of the submission's, and which
// its agent gets. Attempt 0 is the submission itself.
func (r Record) Span(attempt int) Trace {
	span, _ := r.Submission()
	if attempt == 0 {
		return span
	}
	return span.Child("attempt " + strconv.Itoa(attempt))
}
