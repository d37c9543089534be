package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/penstock-run/penstock/jobs"
)

// maxNodes bounds a job's schema once its references are replaced with what they
// name. A submitter must not choose how long a worker computes.
const maxNodes = 10_000

// Able reports a job whose result_schema is no schema that [Typed] can use, as
// an [*jobs.InvalidError].
func Able(j jobs.Job) error {
	if len(j.ResultSchema) == 0 {
		return nil
	}
	if _, err := typed(j.ResultSchema); err != nil {
		return &jobs.InvalidError{Fields: []jobs.FieldError{{Field: "result_schema", Reason: err.Error()}}}
	}
	return nil
}

// Typed reports why a value does not fit a job's schema.
func Typed(schema, value json.RawMessage) error {
	s, err := typed(schema)
	if err != nil {
		return err
	}
	var v any
	if err := json.Unmarshal(value, &v); err != nil {
		return err
	}
	return s.Validate(v)
}

func typed(raw json.RawMessage) (*jsonschema.Resolved, error) {
	var tree any
	if !json.Valid(raw) {
		return nil, fmt.Errorf("is not JSON: %w", json.Unmarshal(raw, &tree))
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&tree); err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	w := &walker{root: tree, open: map[string]bool{}}
	if err := w.visit(tree, true); err != nil {
		return nil, err
	}
	// What was looked at, and not what a key that stands there twice may add.
	raw, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("is not a JSON Schema: %w", err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("is not a JSON Schema: %w", err)
	}
	return resolved, nil
}

// A walker measures a schema with its references followed: a few that name one
// another stand for more than any computer can look at.
type walker struct {
	root  any
	nodes int
	open  map[string]bool // references that are being followed
}

func (w *walker) visit(node any, root bool) error {
	if w.nodes++; w.nodes > maxNodes {
		return fmt.Errorf("has more than %d parts, references followed", maxNodes)
	}
	switch n := node.(type) {
	case []any:
		for _, v := range n {
			if err := w.visit(v, false); err != nil {
				return err
			}
		}
	case map[string]any:
		for key := range n {
			if err := known(key, root); err != nil {
				return err
			}
		}
		for _, v := range n {
			if err := w.visit(v, false); err != nil {
				return err
			}
		}
		if ref, is := n["$ref"].(string); is {
			return w.follow(ref)
		}
	}
	return nil
}

// known refuses keys that lead elsewhere than the walker sees. The library reads
// them in any case.
func known(key string, root bool) error {
	for _, k := range []string{"$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef", "$id", "$ref"} {
		switch same := strings.EqualFold(key, k); {
		case !same, key == "$ref", key == "$id" && root:
		default:
			return fmt.Errorf("uses %s here, which is not supported: name definitions with $ref and #/$defs", key)
		}
	}
	return nil
}

func (w *walker) follow(ref string) error {
	target, ok := w.find(ref)
	switch {
	case !ok:
		return fmt.Errorf("has the reference %q, and nothing is there: write #/$defs/NAME", ref)
	case w.open[ref]:
		return fmt.Errorf("is recursive: %q leads to itself", ref)
	}
	w.open[ref] = true
	defer delete(w.open, ref)
	return w.visit(target, ref == "#")
}

// find follows a JSON pointer of the schema itself.
func (w *walker) find(ref string) (any, bool) {
	rest, ok := strings.CutPrefix(ref, "#")
	if !ok || rest != "" && rest[0] != '/' {
		return nil, false
	}
	node := w.root
	for part := range strings.SplitSeq(rest, "/") {
		if part == "" {
			continue
		}
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch n := node.(type) {
		case map[string]any:
			if node, ok = n[part]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(n) {
				return nil, false
			}
			node = n[i]
		default:
			return nil, false
		}
	}
	return node, true
}
