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

// errRemote refuses what the provider would do in the network.
var errRemote = errors.New("the provider would reach into the network for it")

// localTools are the kinds of tools that the agent runs itself, or that have
// no network where they run.
var localTools = []string{"custom", "bash_", "text_editor_", "computer_", "memory_", "tool_search_tool_"}

// inspectAnthropic reads a body token by token, as the provider will: a name
// that stands twice in an object is refused, because two readers may choose
// different ones.
func inspectAnthropic(body []byte, remote bool) (asked, error) {
	in := &inspector{dec: json.NewDecoder(bytes.NewReader(body)), remote: remote}
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
		case len(path) == 0 && name == "mcp_servers" && !in.remote:
			return fmt.Errorf("mcp_servers: %w", errRemote)
		case name == "input" || name == "input_schema":
			// The agent's and its tools' own data, which nobody interprets.
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
	case slices.Equal(path, []string{"tools", "type"}):
		local := func(kind string) bool { return s == kind || strings.HasSuffix(kind, "_") && strings.HasPrefix(s, kind) }
		if !slices.ContainsFunc(localTools, local) {
			return fmt.Errorf("tool of type %.60q: %w", s, errRemote)
		}
	case len(path) > 1 && slices.Equal(path[len(path)-2:], []string{"source", "type"}) && s == "url":
		return fmt.Errorf("content given by URL: %w", errRemote)
	}
	return nil
}
