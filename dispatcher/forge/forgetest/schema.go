package forgetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

func (d *description) valid(name string, schema json.RawMessage, body []byte) error {
	by, err := d.schema(name, schema)
	if err != nil {
		return err
	}
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		return err
	}
	return by.Validate(value)
}

// schema makes a JSON Schema of one of OpenAPI 3.0, with all that it refers to.
func (d *description) schema(name string, of json.RawMessage) (*jsonschema.Resolved, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.schemas[name]; s != nil {
		return s, nil
	}
	var root any
	if err := json.Unmarshal(of, &root); err != nil {
		return nil, err
	}
	defs := map[string]any{}
	root = d.convert(root, defs)
	whole, ok := root.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("schema of %s is no object", name)
	}
	whole["$defs"] = defs
	data, err := json.Marshal(whole)
	if err != nil {
		return nil, err
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, err
	}
	resolved, err := s.Resolve(nil)
	if err == nil {
		d.schemas[name] = resolved
	}
	return resolved, err
}

// convert turns a value of OpenAPI 3.0 into one of JSON Schema, and puts what it refers to
// into defs.
func (d *description) convert(value any, defs map[string]any) any {
	switch v := value.(type) {
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = d.convert(v[i], defs)
		}
		return list
	case map[string]any:
		return d.convertObject(v, defs)
	}
	return value
}

func (d *description) convertObject(v map[string]any, defs map[string]any) any {
	if ref, ok := v["$ref"].(string); ok {
		name := ref[strings.LastIndex(ref, "/")+1:]
		if _, known := defs[name]; !known {
			defs[name] = true // a schema may refer to itself
			var found any
			if json.Unmarshal(d.components["schemas"][name], &found) == nil {
				defs[name] = d.convert(found, defs)
			}
		}
		return map[string]any{"$ref": "#/$defs/" + name}
	}
	all := map[string]any{}
	for key, inner := range v {
		switch key {
		case "example", "examples", "default", "description", "format", "pattern", "externalDocs", "discriminator", "deprecated", "readOnly", "xml", "title":
			if _, named := inner.(map[string]any); !named || key == "externalDocs" || key == "example" || key == "examples" {
				continue // and not a property of this name
			}
		case "nullable":
			continue
		}
		all[key] = d.convert(inner, defs)
	}
	if _, listed := all["properties"]; listed && d.strict && all["additionalProperties"] == nil {
		all["additionalProperties"] = false
	}
	if v["nullable"] == true {
		return map[string]any{"anyOf": []any{map[string]any{"type": "null"}, maps.Clone(all)}}
	}
	return all
}
