package schema

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

const finding = `{"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"https://example.com/f","type":"object","required":["risk"],
"properties":{"risk":{"$ref":"#/$defs/level"},"files":{"type":"array","items":{"type":"string"},"maxItems":2}},"additionalProperties":false,
"$defs":{"level":{"enum":["low","high"]}}}`

func TestTyped(t *testing.T) {
	for value, want := range map[string]string{
		`{"risk":"low","files":["a"]}`:         "",
		`{"risk":"none"}`:                      "enum",
		`{"files":[]}`:                         "risk",
		`{"risk":"low","more":1}`:              "more",
		`{"risk":"low","files":["a","b","c"]}`: "maxItems",
		`[]`:                                   "type",
		`{`:                                    "JSON",
	} {
		err := Typed(json.RawMessage(finding), json.RawMessage(value))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", value, err, want)
		}
	}
}

// A submitter writes a schema, which must not keep a worker busy, or end it.
func TestSchemasThatNobodyCanUse(t *testing.T) {
	var laughs strings.Builder
	for i := range 40 {
		fmt.Fprintf(&laughs, `"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	for schema, want := range map[string]string{
		`{"$ref":"#"}`: "recursive",
		`{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"not":{"$ref":"#/$defs/a"}}},"$ref":"#/$defs/a"}`:      "recursive",
		`{"properties":{"a":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}}`:                                    "recursive",
		`{"$defs":{` + laughs.String() + `"a40":{}},"$ref":"#/$defs/a0"}`:                               "parts",
		`{"$ref":"https://example.com/other"}`:                                                          "nothing is there",
		`{"$ref":"#/$defs/none"}`:                                                                       "nothing is there",
		`{"$dynamicRef":"#a"}`:                                                                          "dynamicRef",
		`{"$defs":{"x":{"$id":"https://example.com/x","$ref":"#/$defs/y","$defs":{"y":{"$ref":"#"}}}}}`: "$id",
		`{"$defs":{"x":{"$anchor":"x"}},"$ref":"#x"}`:                                                   "$anchor",
		`{"$REF":"#"}`:    "$REF",
		`{"type":"obj`:    "not JSON",
		`{"type":7}`:      "not a JSON Schema",
		`{"pattern":"("}`: "not a JSON Schema",
	} {
		err := Able(jobs.Job{ResultSchema: json.RawMessage(schema)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: got %v, want %q", schema, err, want)
		}
	}
	// The second of two equal keys counts, for people and for the validator.
	twice := json.RawMessage(`{"items":{"$ref":"#"},"items":{"type":"string"}}`)
	if err := Typed(twice, json.RawMessage(`["a"]`)); err != nil {
		t.Errorf("a key that is there twice: %v", err)
	}
	if err := Able(jobs.Job{}); err != nil {
		t.Errorf("a job without one: %v", err)
	}
}
