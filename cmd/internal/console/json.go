package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/penstock-run/penstock/jobs/visible"
)

// JSON returns a JSON document with the same values, in which every character
// that a terminal would act on is escaped. They can stand in its strings only.
func JSON(document []byte) []byte {
	s := string(document)
	if visible.Plain(s, "\n\t\r") {
		return document
	}
	return []byte(rewrite(s, visible.Escape))
}

// rewrite replaces the characters that a terminal acts on.
func rewrite(s string, with func(rune) string) string {
	var b strings.Builder
	for _, r := range s {
		if visible.Active(r) && r != '\n' && r != '\t' && r != '\r' {
			b.WriteString(with(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// YAML writes a value with the keys that it has in JSON, and escapes what JSON
// escapes.
func YAML(w io.Writer, value any) error {
	document, err := nodes(value)
	if err != nil {
		return err
	}
	var b strings.Builder
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(document); err != nil {
		return err
	}
	if err := enc.Close(); err != nil {
		return err
	}
	_, err = io.WriteString(w, rewrite(b.String(), func(r rune) string {
		if r > 0xffff {
			return fmt.Sprintf(`\U%08x`, r)
		}
		return visible.Escape(r)
	}))
	return err
}

// nodes returns a value as YAML. It does not go through YAML's own reader, since a
// document of ours may hold JSON of others: with halves of characters, control
// characters and long keys, which that one refuses.
func nodes(value any) (*yaml.Node, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var whole any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&whole); err != nil {
		return nil, err
	}
	return node(whole), nil
}

func node(value any) *yaml.Node {
	switch v := value.(type) {
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			n.Content = append(n.Content, node(key), node(v[key]))
		}
		return n
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, item := range v {
			n.Content = append(n.Content, node(item))
		}
		return n
	case json.Number:
		tag := "!!int"
		if strings.ContainsAny(v.String(), ".eE") {
			tag = "!!float"
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: v.String()}
	case string:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v, Style: style(v)}
	}
	var n yaml.Node
	_ = n.Encode(value) // true, false or null
	return &n
}

// style quotes the strings in which escapes are needed: only quotes give them a
// meaning.
func style(s string) yaml.Style {
	switch {
	case rewrite(s, visible.Escape) != s || strings.Contains(s, "\r"):
		return yaml.DoubleQuotedStyle
	case strings.Contains(s, "\n"):
		return yaml.LiteralStyle
	}
	return 0
}
