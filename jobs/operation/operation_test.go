package operation_test

import (
	"flag"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/sandbox/goldentest"
)

var update = flag.Bool("update", false, "write docs/reference/operations.md")

const head = `# Operations

This page is made from the program: ` + "`make generate`" + ` writes it. A request goes to ` + "`penstock.v1.api.<operation>`" + `, as
one JSON object; the answer is one, too, or a refusal with a code of the table below.
[Clients](../how-to/clients.md) has examples. An operator may ask for everything; the role autoscale is for
[tokens](../how-to/tokens.md) alone. A field with ` + "`?`" + ` may be
left out; a field that an operation does not have is refused by its name. ` + "`penstock schema operation NAME`" + ` prints the JSON
Schemas of one operation's request, answer and refusal, ` + "`penstock schema operation`" + ` those of all.

An answer with ` + "`next`" + ` is a page of a list: the next page is the same request with that as ` + "`after`" + `. An operation that
waits answers after at most %v, with what there is then; ask again.

| header of a request | what it says |
|---|---|
| ` + "`%s`" + ` | a word for the program that asks, which is kept with what the request changes |
| ` + "`%s`" + ` | of ` + "`submit`" + `: the id that the job is to have, a UUIDv7 that the submitter has chosen, so that the request may be sent again |
| ` + "`%s`, `%s`" + ` | the span of the sender, as W3C Trace Context has it: a job that the request makes is part of that trace |

| operation | roles | changes | what it does | request | answer |
|---|---|---|---|---|---|
`

// TestReference holds docs/reference/operations.md against the tables.
func TestReference(t *testing.T) {
	var b strings.Builder
	fmt.Fprintf(&b, head, operation.MaxWait, operation.CallerHeader, operation.JobIDHeader, jobs.TraceParent, jobs.TraceState)
	for _, row := range operation.All() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", row.Name, roles(row), yes(row.Changes), row.Sentence, shape(row.Request), shape(row.Answer))
	}
	b.WriteString("\n## Refusals\n\n" +
		"A refusal is `{\"error\": {\"code\": …, \"message\": …, \"fields\": […]}}`. The message is for people, the code for programs.\n\n" +
		"| code | meaning |\n|---|---|\n")
	for _, row := range jobs.ErrorCodes {
		fmt.Fprintf(&b, "| `%s` | %s |\n", row.Code, row.Meaning)
	}
	goldentest.Compare(t, "../../docs/reference/operations.md", b.String(), *update)
}

func roles(row operation.Row) string {
	var may []string
	for _, role := range append([]jobs.Role{jobs.RoleAutoscale}, jobs.Roles...) {
		if row.Allows(role) {
			may = append(may, string(role))
		}
	}
	return strings.Join(may, ", ")
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

// whole are the documents that the reference does not take apart, and what it calls
// them.
var whole = map[string]string{
	"Job": "a [job](../how-to/clients.md)", "Record": "a record", "Result": "a result", "Standing": "a standing", "Receipt": "a receipt",
	"Schedule": "a [schedule](../how-to/schedules.md)", "Hold": "a pause", "Nothing": "nothing",
	"Report": "a [report](../how-to/batch.md)",
}

// shape lists the fields of a request or an answer.
func shape(t reflect.Type) string {
	name := t.Name()
	if t.Kind() == reflect.Slice {
		name = "[]" + t.Elem().Name()
	}
	if t.Name() == "Record" && strings.HasSuffix(t.PkgPath(), "calendar") {
		return "a schedule's record"
	}
	if words, ok := whole[name]; ok {
		return words
	}
	var fields []string
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		if f.Anonymous {
			fields = append(fields, "those of a "+map[string]string{"Record": "record", "DeadLetter": "dead letter"}[f.Name])
			continue
		}
		field, options, _ := strings.Cut(tag, ",")
		if strings.Contains(options, "omit") {
			field += "?"
		}
		fields = append(fields, "`"+field+"`")
	}
	return strings.Join(fields, ", ")
}

// Each operation has a name of its own, a sentence, and is for a role; what changes
// nothing is for viewers, and what changes something is not.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range operation.All() {
		if seen[row.Name] || jobs.CheckToken("name", row.Name) != nil {
			t.Errorf("the name %q is not one, or stands twice", row.Name)
		}
		seen[row.Name] = true
		if !strings.HasSuffix(row.Sentence, ".") {
			t.Errorf("%s is not described by a sentence: %q", row.Name, row.Sentence)
		}
		secret := row.Name == "token-list" || row.Name == "audit" // who may do what is for operators alone
		if row.Allows(jobs.RoleViewer) == (row.Changes || secret) {
			t.Errorf("%s changes something: %v; a viewer may ask for it: %v", row.Name, row.Changes, row.Allows(jobs.RoleViewer))
		}
		if row.Allows(jobs.RoleWorker) || !row.Allows(jobs.RoleOperator) {
			t.Errorf("%s is for %v", row.Name, row.Roles)
		}
		if row.Allows(jobs.RoleAutoscale) != (row.Name == "queue-list" || row.Name == "stats") {
			t.Errorf("an autoscaler may ask for %s: %v", row.Name, row.Allows(jobs.RoleAutoscale))
		}
	}
}

// A refusal comes back as the error that it was made of, as far as others can tell.
func TestRefusal(t *testing.T) {
	_, err := operation.Wait.Decode([]byte(`{"id":"x","for":"soon","colour":"red"}`))
	restored := operation.Refuse(fmt.Errorf("ask: %w", err)).Err()
	if jobs.Code(restored) != jobs.CodeInvalid || restored.Error() != "ask: "+err.Error() {
		t.Errorf("%v comes back as %v", err, restored)
	}
	if text := restored.Error(); !strings.Contains(text, "colour") || !strings.Contains(text, "for") {
		t.Errorf("%s names not all fields", text)
	}
}
