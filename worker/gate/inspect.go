package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

var (
	// errRemote refuses what the provider would do in the network.
	errRemote = errors.New("the provider would reach into the network for it")
	// errUncounted refuses what would be used and not be told here.
	errUncounted = errors.New("what it uses could not be counted")
)

// rules are what may stand in a body. Names are compared wherever they stand,
// except in opaque values.
type rules struct {
	opaque  []string         // whose values are the agent's own data, which nobody interprets
	refused map[string]error // at the top
	tools   []string         // kinds of tools that run where the agent does, or without a network
	byURL   func(path []string, value string) bool
}

var anthropicRules = rules{
	opaque:  []string{"input", "input_schema"},
	refused: map[string]error{"mcp_servers": errRemote},
	tools:   []string{"custom", "bash_", "text_editor_", "computer_", "memory_", "tool_search_tool_"},
	byURL:   func(path []string, value string) bool { return value == "url" && endsWith(path, "source", "type") },
}

var openaiRules = rules{
	opaque: []string{"parameters", "schema"},
	// A stored prompt may have tools of its own.
	refused: map[string]error{"prompt": errRemote, "background": errUncounted},
	tools:   []string{"function", "custom", "namespace", "tool_search", "local_shell", "apply_patch"},
	byURL: func(path []string, value string) bool {
		return (endsWith(path, "image_url") || endsWith(path, "file_url") || endsWith(path, "image_url", "url")) &&
			!strings.HasPrefix(value, "data:")
	},
}

func endsWith(path []string, names ...string) bool {
	return len(path) >= len(names) && slices.Equal(path[len(path)-len(names):], names)
}

// inspect reads a body token by token, as the provider will: a name that
// stands twice in an object is refused, because two readers may choose
// different ones.
func (r rules) inspect(body []byte, remote bool) (asked, error) {
	in := &inspector{rules: r, dec: json.NewDecoder(bytes.NewReader(body)), remote: remote}
	in.dec.UseNumber()
	if err := in.value(nil); err != nil {
		return asked{}, err
	}
	if _, err := in.dec.Token(); !errors.Is(err, io.EOF) {
		return asked{}, errors.New("more than one JSON value")
	}
	if in.asked.model == "" {
		return asked{}, errors.New("names no model")
	}
	return in.asked, nil
}

// maxDepth bounds the recursion: a body of brackets must not use up the stack.
const maxDepth = 200

type inspector struct {
	rules
	dec    *json.Decoder
	remote bool
	depth  int
	asked  asked
}

// value reads the value at path. An element of a list has the list's path.
func (in *inspector) value(path []string) error {
	if in.depth++; in.depth > maxDepth {
		return errors.New("nested too deeply")
	}
	defer func() { in.depth-- }()
	t, err := in.dec.Token()
	if err != nil {
		return err
	}
	switch t := t.(type) {
	case json.Delim:
		if t == '[' {
			return in.list(path)
		}
		return in.object(path)
	case string:
		return in.text(path, t)
	case bool:
		if slices.Equal(path, []string{"stream"}) {
			in.asked.stream = t
		}
	}
	return nil
}

func (in *inspector) list(path []string) error {
	for in.dec.More() {
		if err := in.value(path); err != nil {
			return err
		}
	}
	_, err := in.dec.Token()
	return err
}

func (in *inspector) object(path []string) error {
	seen := map[string]bool{}
	for in.dec.More() {
		t, err := in.dec.Token()
		if err != nil {
			return err
		}
		name, _ := t.(string) // a decoder gives nothing else here
		if seen[name] {
			return fmt.Errorf("%q stands twice in an object", name)
		}
		seen[name] = true
		switch {
		case len(path) == 0 && in.refused[name] != nil && !(in.remote && errors.Is(in.refused[name], errRemote)):
			return fmt.Errorf("%s: %w", name, in.refused[name])
		case slices.Contains(in.opaque, name):
			var skip json.RawMessage
			err = in.dec.Decode(&skip)
		default:
			err = in.value(append(path[:len(path):len(path)], name))
		}
		if err != nil {
			return err
		}
	}
	_, err := in.dec.Token()
	return err
}

func (in *inspector) text(path []string, s string) error {
	switch {
	case slices.Equal(path, []string{"model"}):
		in.asked.model = s
	case in.remote:
	case endsWith(path, "tools", "type"):
		local := func(kind string) bool { return s == kind || strings.HasSuffix(kind, "_") && strings.HasPrefix(s, kind) }
		if !slices.ContainsFunc(in.tools, local) {
			return fmt.Errorf("tool of type %.60q: %w", s, errRemote)
		}
	case in.byURL(path, s):
		return fmt.Errorf("content given by URL: %w", errRemote)
	}
	return nil
}
