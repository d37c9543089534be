package cli

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Differs returns the names of the settings that other has differently, without those that
// are named, and those of groups that are. It returns no values: a URL may have a password.
func (c Config) Differs(other Config, but ...string) []string {
	here, err := c.Plain()
	there, failed := other.Plain()
	if err != nil || failed != nil {
		return nil // both were read from a file
	}
	names := map[string]bool{}
	compare("", here, there, names)
	for _, name := range but {
		maps.DeleteFunc(names, func(differs string, _ bool) bool { return strings.HasPrefix(differs+".", name+".") })
	}
	return slices.Sorted(maps.Keys(names))
}

// compare names the settings that differ, those of a group with the group before them.
func compare(group string, here, there map[string]any, names map[string]bool) {
	keys := maps.Clone(here)
	maps.Copy(keys, there)
	for key := range keys {
		a, grouped := here[key].(map[string]any)
		b, both := there[key].(map[string]any)
		switch {
		case grouped && both:
			compare(group+key+".", a, b, names)
		case !reflect.DeepEqual(here[key], there[key]):
			names[group+key] = true
		}
	}
}
