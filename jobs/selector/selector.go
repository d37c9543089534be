// Package selector says which jobs a limit of a pool is about, by what they have in common:
//
//	queue:NAME   batch:ID   agent:NAME   repo:URL   label:NAME=VALUE
//
// With * instead of a value a selector is about each value on its own: "repo:*" is one limit for
// every repository. A selector with a value replaces the one with * of its kind for that value.
//
// The package holds values only.
package selector

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs"
)

// kinds are what jobs can have in common, besides labels, and where to see it.
var kinds = map[string]func(jobs.Record) string{
	"queue": func(r jobs.Record) string { return r.Queue },
	"batch": func(r jobs.Record) string { return r.Batch },
	"agent": func(r jobs.Record) string { return r.Agent },
	"repo":  func(r jobs.Record) string { return r.Repo },
}

// Check reports what is wrong with a selector.
func Check(text string) error {
	kind, value, ok := strings.Cut(text, ":")
	label, of, isLabel := strings.Cut(value, "=")
	switch {
	case !ok || value == "" || kinds[kind] == nil && kind != "label":
		return errors.New("use queue:NAME, batch:ID, agent:NAME, repo:URL or label:NAME=VALUE, or * for each NAME, ID, URL or VALUE")
	case kind == "label" && (!isLabel || label == "" || of == ""):
		return errors.New("a label is NAME=VALUE, or NAME=* for each value")
	case len(text) > 1024:
		return errors.New("is longer than 1024 bytes")
	}
	return nil
}

// Split takes SELECTOR=VALUE apart at the last equals sign, which no value has.
func Split(text string) (selector, value string, err error) {
	at := strings.LastIndexByte(text, '=')
	if at < 0 {
		return "", "", fmt.Errorf("%q has no =", text)
	}
	return text[:at], text[at+1:], nil
}

// A Match is a selector that a job has matched.
type Match struct {
	At  int    // which one of those that were given
	Key string // the selector with the job's own value for the *
}

// Of returns which of the selectors match a job, in the order of their keys.
func Of(all []string, r jobs.Record) []Match {
	var found []Match
	for i, one := range all {
		kind, value, _ := strings.Cut(one, ":")
		prefix, own := kind+":", ""
		if kind == "label" {
			name, of, _ := strings.Cut(value, "=")
			prefix, own, value = prefix+name+"=", r.Labels[name], of
		} else {
			own = kinds[kind](r)
		}
		exact := prefix + own
		replaced := value == "*" && slices.Contains(all, exact)
		if own != "" && !replaced && (value == "*" || value == own) {
			found = append(found, Match{i, exact})
		}
	}
	slices.SortFunc(found, func(a, b Match) int { return strings.Compare(a.Key, b.Key) })
	return found
}
