package intake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	yaml "go.yaml.in/yaml/v3"

	"github.com/penstock-run/penstock/jobs"
)

// readYAML reads a mapping with jobs: and, besides them, defaults: and matrix:, or
// a plain list of what the JSON formats hold.
func readYAML(data []byte, limits Limits) ([]*entry, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		return nil, inputError(0, "is not YAML: %v", err)
	}
	var more yaml.Node
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, inputError(0, "has more than one YAML document: a batch is one")
	}
	if len(doc.Content) != 1 {
		return nil, inputError(0, "has no items")
	}
	top := doc.Content[0]
	if top.Kind == yaml.SequenceNode {
		return yamlEntries(top, nil)
	}
	if top.Kind != yaml.MappingNode {
		return nil, inputError(top.Line, "wants a mapping with jobs:, or a list")
	}
	parts, err := topFields(top)
	if err != nil {
		return nil, err
	}
	if parts["jobs"] == nil || parts["jobs"].Kind != yaml.SequenceNode {
		return nil, inputError(top.Line, "wants a list of jobs under jobs:")
	}
	var defaults json.RawMessage
	if node := parts["defaults"]; node != nil {
		raw, err := nodeJSON(node)
		if err != nil {
			return nil, inputError(node.Line, "defaults: %v", err)
		}
		if err := jobs.DecodeStrict(raw, new(jobs.Job)); err != nil {
			return nil, inputError(node.Line, "defaults: %v", err)
		}
		defaults = raw
	}
	if node := parts["matrix"]; node != nil {
		m, err := readMatrix(node, limits)
		if err != nil {
			return nil, err
		}
		return m.entries(yamlObjects(parts["jobs"]), defaults, limits)
	}
	return yamlEntries(parts["jobs"], defaults)
}

// topFields are the fields of the document.
func topFields(top *yaml.Node) (map[string]*yaml.Node, error) {
	parts := map[string]*yaml.Node{}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		if key.Value != "jobs" && key.Value != "defaults" && key.Value != "matrix" {
			return nil, inputError(key.Line, "%q is not a field; known are defaults, jobs, matrix", key.Value)
		}
		if parts[key.Value] != nil {
			return nil, inputError(key.Line, "%q is there twice", key.Value)
		}
		parts[key.Value] = value
	}
	return parts, nil
}

func yamlObjects(list *yaml.Node) []object {
	objects := make([]object, len(list.Content))
	for i, node := range list.Content {
		raw, err := nodeJSON(node)
		if err != nil {
			objects[i] = object{line: node.Line, err: inputError(node.Line, "%v", err)}
			continue
		}
		objects[i] = newObject(node.Line, raw)
	}
	return objects
}

func yamlEntries(list *yaml.Node, defaults json.RawMessage) ([]*entry, error) {
	objects := yamlObjects(list)
	kind := kindOf(objects)
	entries := make([]*entry, len(objects))
	for i, o := range objects {
		e := o.entry(kind)
		if e.err == nil && defaults != nil {
			// What the file says for all its jobs stands under the job and
			// above what the command line says.
			merged, err := overlay(defaults, e.job)
			e.job = merged
			if err != nil {
				e.err = inputError(e.line, "%v", err)
			}
		}
		entries[i] = e
	}
	return entries, nil
}

// nodeJSON rewrites YAML as JSON, so that one strict reader serves all.
func nodeJSON(node *yaml.Node) (json.RawMessage, error) {
	var v any
	if err := node.Decode(&v); err != nil {
		return nil, fmt.Errorf("is not YAML: %w", err)
	}
	if err := onlyStrings(v); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("has a value that JSON cannot hold: %w", err)
	}
	return raw, nil
}

// onlyStrings refuses mappings whose keys are not strings: 1: and yes: would
// otherwise become names that are not in the file.
func onlyStrings(v any) error {
	switch v := v.(type) {
	case map[any]any:
		for key := range v {
			if _, ok := key.(string); !ok {
				return fmt.Errorf("the key %v is not a string: put it in quotes", key)
			}
		}
		return errors.New("has a mapping with keys that are not strings")
	case map[string]any:
		for _, value := range v {
			if err := onlyStrings(value); err != nil {
				return err
			}
		}
	case []any:
		for _, value := range v {
			if err := onlyStrings(value); err != nil {
				return err
			}
		}
	}
	return nil
}
