package summary

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// fieldsMost bounds what Fields returns.
const fieldsMost = 300

// Fields says JSON as words: the values of an object with their names.
func Fields(raw json.RawMessage) string {
	var v any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if len(raw) == 0 || dec.Decode(&v) != nil {
		return ""
	}
	text := []rune(said(v))
	if len(text) > fieldsMost {
		return string(text[:fieldsMost]) + " …"
	}
	return string(text)
}

func said(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var words []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if text := said(v[key]); text != "" {
				words = append(words, key+" "+text)
			}
		}
		return strings.Join(words, ", ")
	case []any:
		var words []string
		for _, item := range v {
			words = append(words, said(item))
		}
		return strings.Join(words, " ")
	case nil:
		return ""
	}
	return fmt.Sprint(v)
}
